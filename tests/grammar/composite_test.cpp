#include "grammar/composite.h"

#include <gtest/gtest.h>

#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;

constexpr TokenId kMarker{1};  // spelled <ctl> in the test vocabulary

ToolDefinition weather() {
  return {.name = "weather",
          .parameters = R"({"type":"object","properties":{"city":{"type":"string","minLength":1},"days":{"type":"integer","maximum":9},)"
                        R"("unit":{"enum":["C","F",null]}},"required":["city"]})",
          .is_strict = true};
}

std::shared_ptr<const CompiledGrammar> composed(CompositeJob job) {
  job.dsml_token = kMarker;
  auto out = compile_composite(job);
  EXPECT_TRUE(out.has_value()) << (out ? "" : out.error().message);
  return out.value_or(nullptr);
}

const std::string kCity = "<<ctl> invoke name=\"weather\">\n<<ctl> parameter name=\"city\" string=\"true\">Paris \"x\"</<ctl> parameter>";
const std::string kEnd_ = "\n</<ctl> invoke>\n</<ctl> calls>";

TEST(Composite, ARequiredCallStartsInsideItsBlockAndFollowsTheSchema) {
  const auto grammar = composed({.tools = {weather()}, .tool_use = ToolUse::required, .block_is_open = true});
  EXPECT_TRUE(matches(grammar, kCity + kEnd_));
  EXPECT_TRUE(matches(grammar, kCity + "\n<<ctl> parameter name=\"days\" string=\"false\">7</<ctl> parameter>" + kEnd_));
  EXPECT_TRUE(matches(grammar, kCity + "\n<<ctl> parameter name=\"unit\" string=\"true\">C</<ctl> parameter>" + kEnd_));
  EXPECT_TRUE(matches(grammar, kCity + "\n<<ctl> parameter name=\"unit\" string=\"false\">null</<ctl> parameter>" + kEnd_));
  EXPECT_FALSE(matches(grammar, kCity + "\n<<ctl> parameter name=\"unit\" string=\"false\">\"C\"</<ctl> parameter>" + kEnd_));
  EXPECT_FALSE(matches(grammar, kCity + "\n<<ctl> parameter name=\"days\" string=\"false\">10</<ctl> parameter>" + kEnd_));
  EXPECT_FALSE(matches(grammar, kCity + "\n<<ctl> parameter name=\"other\" string=\"true\">x</<ctl> parameter>" + kEnd_));
  EXPECT_FALSE(matches(grammar, "<<ctl> invoke name=\"weather\">\n" + kEnd_));
  EXPECT_FALSE(matches(grammar, kCity + kEnd_ + " more"));
}

TEST(Composite, AutomaticCallsComeOutOfFreeTextOnlyThroughTheMarker) {
  const auto grammar =
      composed({.tools = {weather(), {.name = "free", .parameters = "", .is_strict = false}}, .tool_use = ToolUse::automatic});
  EXPECT_TRUE(matches(grammar, "just < text"));
  EXPECT_TRUE(matches(grammar, "text\n\n<<ctl> calls>\n" + kCity + kEnd_));
  EXPECT_TRUE(matches(
      grammar, "<<ctl> calls>\n<<ctl> invoke name=\"free\">\n<<ctl> parameter name=\"k\" string=\"false\">[1]</<ctl> parameter>" + kEnd_));
  EXPECT_FALSE(matches(grammar, "<<ctl> calls>\n<<ctl> invoke name=\"unknown\">\n" + kEnd_));
  EXPECT_FALSE(matches(grammar, "text<<ctl> calls>\n" + kCity));
  EXPECT_FALSE(matches(grammar, "text <ctl> calls>\n" + kCity + kEnd_));  // the marker stands directly behind "<"
}

TEST(Composite, OneCallWithoutParallelCalls) {
  CompositeJob job{.tools = {weather()}, .tool_use = ToolUse::required, .has_parallel_calls = false, .block_is_open = true};
  const std::string two = kCity + "\n</<ctl> invoke>\n" + kCity + kEnd_;
  EXPECT_FALSE(matches(composed(job), two));
  job.has_parallel_calls = true;
  EXPECT_TRUE(matches(composed(job), two));
}

TEST(Composite, ReasoningIsFreeUntilItsEndIdAndNothingEndsInIt) {
  CompositeJob job{.reasoning_end_ids = {kMarker}};
  job.body = CompositeJob::Body{.kind = GrammarKind::regex, .text = "[0-9]+", .options = {}};
  const auto grammar = composed(job);
  Matcher matcher = matcher_of(grammar, vocabulary_of({}));
  EXPECT_FALSE(matcher.accept(kEnd));
  ASSERT_TRUE(matcher.accept(TokenId{2 + 'x'}));
  ASSERT_TRUE(matcher.accept(kMarker));
  EXPECT_FALSE(matcher.accept(TokenId{2 + 'x'}));
  EXPECT_FALSE(matcher.accept(kMarker));
  EXPECT_TRUE(matcher.accept(TokenId{2 + '7'}));
  EXPECT_TRUE(matcher.accept(kEnd));
}

TEST(Composite, ABadToolIsNamed) {
  CompositeJob job{
      .tools = {weather(), {.name = "bad", .parameters = R"({"type":"object","properties":{"a":{"type":"strng"}}})", .is_strict = true}},
      .tool_use = ToolUse::automatic};
  const auto out = compile_composite(job);
  ASSERT_FALSE(out.has_value());
  EXPECT_NE(out.error().message.find("tool \"bad\""), std::string::npos);
  EXPECT_EQ(out.error().pointer, "/properties/a/type");
}

TEST(Composite, ToolsAreReadInBothForms) {
  const auto json =
      json::parse(R"([{"type":"function","function":{"name":"a","parameters":{"type":"object"},"strict":true}},{"name":"b"}])");
  ASSERT_TRUE(json.has_value());
  const auto tools = tools_from_json(*json);
  ASSERT_TRUE(tools.has_value());
  EXPECT_TRUE((*tools)[0].is_strict);
  EXPECT_EQ((*tools)[1].name, "b");
}

}  // namespace
}  // namespace deepinfer::grammar
