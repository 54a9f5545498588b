// Masks filled before a request comes: they change no answer, whatever the grammar, and stop where they are told to.
#include "grammar/warm_up.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support.h"

namespace deepinfer::grammar {
namespace {

using testing::kEnd;
using testing::matcher_of;
using testing::try_compile;
using testing::vocabulary_of;

/// Masks before each byte of `text`, and behind it.
std::vector<std::vector<std::uint32_t>> masks_along(const std::shared_ptr<const CompiledGrammar>& grammar,
                                                    const std::shared_ptr<const Vocabulary>& vocabulary, const std::string& text) {
  Matcher matcher = matcher_of(grammar, vocabulary);
  std::vector<std::vector<std::uint32_t>> out;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    out.emplace_back(vocabulary->mask_words());
    matcher.fill_mask(out.back());
    if (i < text.size()) {
      EXPECT_TRUE(matcher.accept(*vocabulary->token_of(static_cast<std::uint8_t>(text[i])))) << text << " at " << i;
    }
  }
  return out;
}

const std::pair<GrammarKind, std::pair<std::string, std::string>> kCases[] = {
    {GrammarKind::json_schema, {R"({"patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}})", R"({"ab": 4})"}},
    {GrammarKind::json_schema, {R"({"type": "string", "format": "hostname"})", R"("a.example")"}},
    {GrammarKind::json_schema, {R"({"type": "array", "items": {"enum": ["x", 1, null]}, "maxItems": 2})", R"(["x",null])"}},
    {GrammarKind::regex, {"(ab|cd){2,4}e?", "abcde"}},
    {GrammarKind::ebnf, {"root ::= \"<\" root \">\" | [a-z]+", "<<abc>>"}},
};

TEST(WarmUp, ChangesNoMask) {
  const auto vocabulary = vocabulary_of({"{\"", "ab", "abc", "\": ", "\"}", "null", "<<", ">>", "example"});
  for (const auto& [kind, texts] : kCases) {
    SCOPED_TRACE(texts.first);
    const auto cold = try_compile(kind, texts.first);
    const auto warm = try_compile(kind, texts.first);
    ASSERT_TRUE(cold && warm);
    fill_first_masks(*warm, vocabulary);
    EXPECT_EQ(masks_along(*warm, vocabulary, texts.second), masks_along(*cold, vocabulary, texts.second));
  }
}

TEST(WarmUp, AVocabularyWithoutBytesIsNoObstacle) {
  const auto vocabulary = std::make_shared<const Vocabulary>(std::vector<VocabularyToken>{{"<end>", true}, {"ab", false}, {"cd", false}}, 4);
  const auto grammar = try_compile(GrammarKind::regex, "(ab|cd)+");
  ASSERT_TRUE(grammar);
  fill_first_masks(*grammar, vocabulary);
  Matcher matcher = matcher_of(*grammar, vocabulary);
  std::vector<std::uint32_t> mask(1);
  matcher.fill_mask(mask);
  EXPECT_EQ(mask[0], 0b110U);
}

}  // namespace
}  // namespace deepinfer::grammar
