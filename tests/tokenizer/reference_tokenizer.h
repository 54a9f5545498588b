// The slow, obvious tokenizer that the fast one is compared with: pieces by regular expression (ICU), merges by repeated
// search for the lowest rank. Only for texts whose characters are in the Unicode version of the machine's ICU.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer_file.h"

namespace deepinfer::tokenizer::testing {

/// The pieces of `text` under the patterns of recipe.md section 1, each applied with Split, Isolated.
std::vector<std::string> reference_pieces(Pattern pattern, std::string_view text);

/// Byte-pair encoding as its definition says: find the lowest rank, merge its leftmost pair, again.
class ReferenceBpe {
 public:
  explicit ReferenceBpe(const TokenizerFile& file);

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view piece) const;

 private:
  const TokenizerFile& file_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks_;
};

}  // namespace deepinfer::tokenizer::testing
