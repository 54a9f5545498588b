// The law of streaming (the pieces of a reply do not change what it says) and the pieces themselves.
#include "recipe/reply_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "recipe/reply_texts.h"

namespace deepinfer::recipe {
namespace {

using testing::parse_pieces;
using testing::ParsedReply;
using testing::reply_cases;
using testing::ReplyCase;

/// Officially JSON mode writes one blank per piece of other text, so only the number of blanks may differ.
ParsedReply without_blank_runs(ParsedReply reply, const ParsingOptions& options) {
  if (options.parse_json_output && options.conformance == Conformance::official) {
    std::erase(reply.content, ' ');
  }
  return reply;
}

ParsedReply parse_whole(const ReplyCase& reply) { return without_blank_runs(parse_pieces(reply.options, {reply.text}), reply.options); }

ParsedReply parse_cut(const ReplyCase& reply, std::vector<std::size_t> cuts) {
  std::ranges::sort(cuts);
  cuts.push_back(reply.text.size());
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    pieces.push_back(std::string_view(reply.text).substr(begin, cut - begin));
    begin = cut;
  }
  return without_blank_runs(parse_pieces(reply.options, pieces), reply.options);
}

/// One delta as a word of a test's expectation.
struct Describe {
  std::string operator()(const ReasoningText& delta) const { return "R:" + std::string(delta.text); }
  std::string operator()(const ContentText& delta) const { return "C:" + std::string(delta.text); }
  std::string operator()(const CallStart& delta) const { return "call:" + std::string(delta.name); }
  std::string operator()(const CallArguments& delta) const { return "A:" + std::string(delta.text); }
  std::string operator()(const Finished& /*end*/) const { return "end"; }
};

using Words = std::vector<std::string>;

class Steps {
 public:
  explicit Steps(const ParsingOptions& options) : parser_(options, SpecialTokens()) {}

  Words text(std::string_view piece) { return words(parser_.feed({.text = piece, .kind = SegmentKind::text, .source = ++source_})); }
  Words tokens(std::string_view piece) {
    return words(parser_.feed({.text = piece, .kind = SegmentKind::token_text, .source = ++source_}));
  }
  Words control(std::string_view piece) {
    return words(parser_.feed({.text = piece, .kind = SegmentKind::control_token, .source = ++source_}));
  }
  Words finish() { return words(parser_.finish(BackendFinish::stop)); }
  [[nodiscard]] const ReplyParser& parser() const { return parser_; }

 private:
  static Words words(std::span<const Delta> deltas) {
    Words out;
    for (const Delta& delta : deltas) {
      out.push_back(std::visit(Describe(), delta));
    }
    return out;
  }

  ReplyParser parser_;
  std::uint64_t source_ = 0;
};

ParsingOptions thinking_with_tools() { return {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_start}; }

Steps inside_call() {
  Steps steps({.parse_tool_calls = true, .starts_in_tool_calls = true});
  EXPECT_EQ(steps.text("<｜DSML｜ invoke name=\"f\">"), Words{"call:f"});
  return steps;
}

TEST(ReplyParser, EveryCutIntoTwoPiecesGivesTheWholeParse) {
  for (const ReplyCase& reply : reply_cases()) {
    const ParsedReply whole = parse_whole(reply);
    for (std::size_t cut = 0; cut <= reply.text.size(); ++cut) {
      ASSERT_EQ(parse_cut(reply, {cut}), whole) << reply.name << ", cut at " << cut;
    }
  }
}

TEST(ReplyParser, ByteByByteGivesTheWholeParse) {
  for (const ReplyCase& reply : reply_cases()) {
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 1; cut < reply.text.size(); ++cut) {
      cuts.push_back(cut);
    }
    EXPECT_EQ(parse_cut(reply, cuts), parse_whole(reply)) << reply.name;
  }
}

TEST(ReplyParser, RandomCutsOfRandomMixturesGiveTheWholeParse) {
  const std::uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << '\n';
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t bound) { return random() % bound; };
  for (int round = 0; round < 3000; ++round) {
    ReplyCase reply = reply_cases()[below(reply_cases().size())];
    const std::string& other = reply_cases()[below(reply_cases().size())].text;
    const std::size_t at = below(reply.text.size() + 1);
    reply.text.insert(at, other.substr(below(other.size() + 1), below(40)));
    std::vector<std::size_t> cuts(below(12));
    for (std::size_t& cut : cuts) {
      cut = below(reply.text.size() + 1);
    }
    ASSERT_EQ(parse_cut(reply, cuts), parse_whole(reply)) << reply.name << ", round " << round << ": " << reply.text;
  }
}

TEST(ReplyParser, APieceWhoseEndMayBelongToAMarkerWaitsAsAWhole) {
  Steps steps(thinking_with_tools());
  EXPECT_EQ(steps.text("abc"), Words{"R:abc"});
  EXPECT_EQ(steps.text("def\n"), Words{});
  EXPECT_EQ(steps.text("\nx"), (Words{"R:def\n", "R:\nx"}));
  EXPECT_EQ(steps.text("y</th"), Words{});
  EXPECT_EQ(steps.text("ink>\n\nhel"), (Words{"R:y", "C:hel"}));
  EXPECT_EQ(steps.text("lo<"), Words{});
  EXPECT_EQ(steps.finish(), (Words{"C:lo<", "end"}));
}

TEST(ReplyParser, WaitingPiecesAreNeverMerged) {
  Steps steps({.stop_sequences = {"hello  x"}});
  EXPECT_EQ(steps.text("hello"), Words{});
  EXPECT_EQ(steps.text(" "), Words{});
  EXPECT_EQ(steps.text(" y"), (Words{"C:hello", "C: ", "C: y"}));
}

TEST(ReplyParser, FragmentsOfMarkersAreDeltasOfTheirOwn) {
  Steps steps = inside_call();
  EXPECT_EQ(steps.text("<｜DSML｜ parameter name=\"ke"), (Words{"A:{", "A:\"ke"}));
  EXPECT_EQ(steps.text("y\" string=\"true\">va"), (Words{"A:y\"", "A:: ", "A:\"", "A:va"}));
  EXPECT_EQ(steps.text("l<"), Words{});
  EXPECT_EQ(steps.text("ue\"</｜DSML｜ parameter>"), (Words{"A:l<", "A:ue\\\"", "A:\""}));
  EXPECT_EQ(steps.text("</｜DSML｜ invoke>"), Words{"A:}"});
}

TEST(ReplyParser, AFragmentWaitsWhenAllThatFollowsInItsPieceIsWithheld) {
  Steps steps = inside_call();
  EXPECT_EQ(steps.text("<｜DSML｜ parameter name=k string=\"true\">v</｜DSML｜pa"), (Words{"A:{", "A:k", "A:: ", "A:\"", "A:v"}));
  EXPECT_EQ(steps.text("ra"), Words{});
  EXPECT_EQ(steps.text("x"), Words{"A:\""});
}

TEST(ReplyParser, AFragmentOfAMarkerOverTwoPiecesDoesNotWait) {
  Steps steps = inside_call();
  EXPECT_EQ(steps.text("<｜DSML｜ parameter name=k string=\"true"), (Words{"A:{", "A:k", "A:: "}));
  EXPECT_EQ(steps.text("\"><"), Words{"A:\""});
}

TEST(ReplyParser, AnEmptyPieceIsAPiece) {
  Steps steps(thinking_with_tools());
  EXPECT_EQ(steps.text(""), Words{});
  EXPECT_EQ(steps.text("r"), (Words{"R:", "R:r"}));
  EXPECT_EQ(steps.text(""), Words{"R:"});
  EXPECT_EQ(steps.text("</think>"), Words{});
  EXPECT_EQ(steps.text(""), Words{});
  EXPECT_EQ(steps.text("x"), Words{"C:x"});
}

TEST(ReplyParser, InTokenTextAMarkerIsOnlyItsControlToken) {
  Steps steps(thinking_with_tools());
  EXPECT_EQ(steps.tokens("a</think>b"), Words{"R:a</think>b"});
  EXPECT_EQ(steps.control("<think>"), Words{"R:<think>"});
  EXPECT_EQ(steps.control("</think>"), Words{});
  EXPECT_EQ(steps.tokens("c<｜DSML｜d"), Words{"C:c<｜DSML｜d"});
  EXPECT_EQ(steps.tokens("e\n\n<"), Words{});
  EXPECT_EQ(steps.control("｜DSML｜"), Words{"C:e"});
  EXPECT_EQ(steps.tokens(" invoke name=\"f\">"), Words{"call:f"});
}

TEST(ReplyParser, AStopSequenceIsNotFoundInControlTokens) {
  Steps steps({.stop_sequences = {"<think>", "a<think>b"}});
  EXPECT_EQ(steps.tokens("a"), Words{});
  EXPECT_EQ(steps.control("<think>"), (Words{"C:a", "C:<think>"}));
  EXPECT_EQ(steps.tokens("b"), Words{"C:b"});
  EXPECT_EQ(steps.tokens("a<think>"), (Words{"C:a", "end"}));
  EXPECT_TRUE(steps.parser().finished());
  EXPECT_EQ(steps.tokens("b"), Words{});
  EXPECT_EQ(steps.finish(), Words{});
}

TEST(ReplyParser, NamesTheOldestSegmentThatMayStillBeMentioned) {
  Steps steps({.stop_sequences = {"abc"}});
  (void)steps.text("x");
  EXPECT_EQ(steps.parser().oldest_source(9), 9U);
  (void)steps.text("a");
  (void)steps.text("b");
  EXPECT_EQ(steps.parser().oldest_source(9), 2U);
  (void)steps.text("x");
  EXPECT_EQ(steps.parser().oldest_source(9), 9U);
}

TEST(ReplyParser, ToolCallsAreTheReasonOnlyWhenTheBackendSaysStop) {
  const std::vector<std::string_view> reply = {"<｜DSML｜ invoke name=\"f\""};
  const ParsingOptions options = {.parse_tool_calls = true};
  EXPECT_EQ(parse_pieces(options, reply, BackendFinish::stop).finish, FinishReason::tool_calls);
  EXPECT_EQ(parse_pieces(options, reply, BackendFinish::length).finish, FinishReason::length);
  EXPECT_EQ(parse_pieces(options, reply, BackendFinish::content_filter).finish, FinishReason::content_filter);
  EXPECT_EQ(parse_pieces(options, reply, BackendFinish::end_of_input).finish, FinishReason::end_of_input);
  EXPECT_EQ(parse_pieces(options, {"<｜DSML｜ invoke name=\"f"}, BackendFinish::stop).finish, FinishReason::stop);
}

}  // namespace
}  // namespace deepinfer::recipe
