// Any text as a regular expression, an EBNF grammar or a JSON Schema (first byte chooses): compiling ends within its limits, and
// what compiles keeps its promise: from wherever random bytes lead, the mask is not empty.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::grammar;

std::shared_ptr<const Vocabulary> bytes_and_end() {
  std::vector<VocabularyToken> tokens{{"", true}};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back({std::string(1, static_cast<char>(byte)), false});
  }
  const auto size = static_cast<std::int32_t>(tokens.size());
  return std::make_shared<const Vocabulary>(std::move(tokens), size);
}

/// Follows the allowed token that comes next behind a value of `choices`, for a few steps.
void walk(Matcher& matcher, const Vocabulary& vocabulary, std::string_view choices) {
  std::vector<std::uint32_t> mask(vocabulary.mask_words());
  for (const char choice : choices.substr(0, 64)) {
    matcher.fill_mask(mask);
    if (matcher.is_exhausted() || matcher.has_ended()) {
      return;
    }
    std::int32_t picked = -1;
    for (std::int32_t i = 0; i < vocabulary.num_rows() && picked < 0; ++i) {
      const std::int32_t id = (static_cast<std::uint8_t>(choice) + i) % vocabulary.num_rows();
      picked = (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0 ? id : -1;
    }
    check(picked >= 0, "the mask is never empty");
    check(matcher.accept(TokenId{picked}) || matcher.is_exhausted(), "an allowed token is taken");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<const Vocabulary> kVocabulary = bytes_and_end();
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const GrammarKind kind = data[0] % 3 == 0 ? GrammarKind::regex : data[0] % 3 == 1 ? GrammarKind::ebnf : GrammarKind::json_schema;
  const auto grammar = compile({.kind = kind, .text = text, .options = {}, .limits = {.compile_time = std::chrono::milliseconds(500)}});
  if (grammar) {
    Matcher matcher(*grammar, kVocabulary, {.end_ids = {TokenId{0}}, .trigger_ids = {}, .bound_id = {}});
    walk(matcher, *kVocabulary, text);
  }
  return 0;
}
