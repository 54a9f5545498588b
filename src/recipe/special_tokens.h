// Spellings of the control tokens of the V4 and V4.1 prompts. A deployment may replace single spellings.
// Token ids are the tokenizer's business: the same spelling has another id in another vocabulary.
#pragma once

#include <string>

namespace deepinfer::recipe {

/// Every spelling is not empty. Bars are U+FF5C, the low lines in BOS and EOS are U+2581.
struct SpecialTokens {
  std::string bos = "<｜begin▁of▁sentence｜>";
  std::string eos = "<｜end▁of▁sentence｜>";
  std::string thinking_start = "<think>";
  std::string thinking_end = "</think>";
  std::string system = "<｜System｜>";
  std::string user = "<｜User｜>";
  std::string assistant = "<｜Assistant｜>";
  std::string latest_reminder = "<｜latest_reminder｜>";
  std::string dsml = "｜DSML｜";
  std::string image = "<｜image｜>";

  friend bool operator==(const SpecialTokens&, const SpecialTokens&) = default;
};

}  // namespace deepinfer::recipe
