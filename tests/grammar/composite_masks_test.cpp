// Masks of whole replies: free reasoning up to an id that ends it, then a random body, tool calls out of free text or instead of it. Along
// random walks, forwards and back again, the mask holds exactly the tokens that a slow acceptor takes, those that reach from one part into
// the next among them.
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <random>

#include "grammar/composite.h"
#include "random_grammars.h"
#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;

constexpr std::int32_t kThinkEnd = 1;
constexpr std::int32_t kMarker = 2;
constexpr std::int32_t kBound = 3;
constexpr std::int32_t kFirstByte = 4;

/// Single bytes of the vocabulary: more would only take longer.
constexpr std::string_view kBytes = "abcdef019.{}[]\":,-<>/ \n\\truelsn=x7y\xE4\xB8\xAD\xFF";
constexpr auto kFirstWord = kFirstByte + static_cast<std::int32_t>(kBytes.size());

TokenId byte_token(char byte) { return TokenId{kFirstByte + static_cast<std::int32_t>(kBytes.find(byte))}; }

/// Ids 0 to 3 are control tokens; then bytes, then words that reach over the borders of parts.
const std::shared_ptr<const Vocabulary>& tokens() {
  static const auto kTokens = [] {
    std::vector<VocabularyToken> out{{"<end>", true}, {"</think>", true}, {"<dsml>", true}, {"<bound>", true}};
    for (const char byte : kBytes) {
      out.push_back({std::string(1, byte), false});
    }
    for (const char* word : {"</think>", "</",     "</think>{\"", "hi<", "\n<",   "\n\n<",   "x</",   " calls>\n<", "\n</",        ">\n<",  "\">\n",
                             "\">\n<",   "\">\n\n", "calls>",      " in", "voke",  " name=\"", "ab\">", "true</",     "\" string=\"", "se\">", "e\">a",
                             "ab",       "a1",     "{\"a\":",       "\",\"", "[true", "1.",     "中文",  "\xE4\xB8",   "\xAD\xE6",   "<a",   "dsml>"}) {
      out.push_back({word, false});
    }
    const auto size = static_cast<std::int32_t>(out.size());
    return std::make_shared<const Vocabulary>(std::move(out), size + 3);
  }();
  return kTokens;
}

bool advance(const SlowGrammar& slow, SlowGrammar::Chart& chart, std::int32_t id, std::size_t& taken) {
  if (id < kFirstByte) {
    ++taken;
    return slow.advance_control(chart, id);
  }
  for (const char byte : tokens()->text(TokenId{id})) {
    ++taken;
    if (!slow.advance(chart, byte)) {
      return false;
    }
  }
  return true;
}

std::size_t length_of(std::int32_t id) { return id < kFirstByte ? 1 : tokens()->text(TokenId{id}).size(); }

std::vector<std::uint32_t> slow_mask(const SlowGrammar& slow, SlowGrammar::Chart& chart) {
  std::vector<std::uint32_t> mask(tokens()->mask_words());
  std::array<bool, 256> begins{};
  for (const char byte : kBytes) {
    begins[static_cast<std::uint8_t>(byte)] = slow.advance(chart, byte);
    slow.retreat(chart, 1);
  }
  for (std::int32_t id = 0; id < tokens()->num_rows(); ++id) {
    std::size_t taken = 0;
    const std::string_view text = tokens()->text(TokenId{id});
    const bool is_worth_trying = id < kFirstByte || (!text.empty() && begins[static_cast<std::uint8_t>(text[0])]);
    const bool is_allowed = id == kEnd.value ? slow.is_complete(chart) : is_worth_trying && advance(slow, chart, id, taken);
    slow.retreat(chart, taken);
    mask[static_cast<std::size_t>(id) / 32] |= is_allowed ? 1U << (id % 32) : 0U;
  }
  return mask;
}

struct Whole {
  CompositeJob job = {};
  std::string what = {};
  SlowGrammar slow = {};
  int root = 0;
};

/// A strict tool of two arguments: letters (required), then perhaps true or false.
int invoke_rule(SlowGrammar& slow) {
  const int marker = slow.control(kMarker);
  const auto text = [&](std::string_view piece) { return slow.literal(piece); };
  const int letters = slow.repeat(slow.one_of({{U'a', U'f'}, {U'<', U'<'}, {U'/', U'/'}}), 1, -1);
  const int first =
      slow.sequence({text("<"), marker, text(" parameter name=\"a\" string=\"true\">"), letters, text("</"), marker, text(" parameter>")});
  const int second = slow.sequence({text("\n<"), marker, text(" parameter name=\"b\" string=\"false\">"),
                                    slow.choice({text("true"), text("false")}), text("</"), marker, text(" parameter>")});
  return slow.sequence(
      {text("<"), marker, text(" invoke name=\"ab\">\n"), first, slow.repeat(second, 0, 1), text("\n</"), marker, text(" invoke>")});
}

/// Behind what opens the block.
int rest_of_block(SlowGrammar& slow, bool has_parallel_calls) {
  const int invoke = invoke_rule(slow);
  const int others = slow.repeat(slow.sequence({slow.literal("\n"), invoke}), 0, has_parallel_calls ? -1 : 0);
  return slow.sequence({invoke, others, slow.literal("\n</"), slow.control(kMarker), slow.literal(" calls>")});
}

Whole random_whole(std::mt19937& random) {
  Whole out;
  const bool has_reasoning = random() % 3 != 0;
  const bool has_tools = random() % 2 == 0;
  const bool has_body = !has_tools || random() % 2 == 0;
  out.job.dsml_token = TokenId{kMarker};
  std::vector<int> answers;
  if (has_body) {
    RandomGrammar body = random() % 2 == 0 ? random_regex(random) : random_schema(random);
    out.job.body = CompositeJob::Body{.kind = body.kind, .text = body.text, .options = body.options};
    out.what += body.text;
    out.slow = std::move(body.slow);
    answers.push_back(body.root);
  }
  SlowGrammar& slow = out.slow;
  const int free_text = slow.repeat(slow.any_byte(), 0, -1);
  if (has_tools) {
    out.job.tools = {{.name = "ab",
                      .parameters = R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-f</]+$"},)"
                                    R"("b":{"type":"boolean"}},"required":["a"]})",
                      .is_strict = true}};
    out.job.has_parallel_calls = random() % 2 == 0;
    out.job.tool_use = has_body || random() % 2 == 0 ? ToolUse::automatic : ToolUse::required;
    out.job.block_is_open = out.job.tool_use == ToolUse::required && !has_reasoning;
    const int rest = rest_of_block(slow, out.job.has_parallel_calls);
    const bool is_behind_text = out.job.tool_use == ToolUse::automatic && !has_body;
    const int before = is_behind_text ? free_text : slow.repeat(slow.literal("\n"), 0, 2);
    const int whole = slow.sequence({before, slow.literal("<"), slow.control(kMarker), slow.literal(" calls>\n"), rest});
    answers.push_back(out.job.block_is_open ? rest : whole);
    if (is_behind_text) {
      answers.push_back(free_text);
    }
    out.what += out.job.tool_use == ToolUse::required ? " required" : " auto";
  }
  out.root = slow.choice(answers);
  if (has_reasoning) {
    out.job.reasoning_end_ids = {TokenId{kThinkEnd}};
    std::vector<int> ends{slow.control(kThinkEnd)};
    if (random() % 3 == 0) {
      out.job.bound_id = TokenId{kBound};
      ends.push_back(slow.sequence({slow.control(kBound), slow.control(kThinkEnd)}));
    }
    out.root = slow.sequence({free_text, slow.choice(ends), out.root});
    out.what += " behind reasoning";
  }
  return out;
}

/// Any allowed id, control tokens and words more often than single bytes.
std::int32_t pick(const std::vector<std::uint32_t>& mask, std::mt19937& random) {
  std::vector<std::int32_t> kinds[2];
  for (std::int32_t id = 1; id < tokens()->num_rows(); ++id) {
    if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) {
      kinds[id < kFirstByte || id >= kFirstWord ? 0 : 1].push_back(id);
    }
  }
  const auto& from = kinds[0].empty() || (!kinds[1].empty() && random() % 3 == 0) ? kinds[1] : kinds[0];
  return from.empty() ? kEnd.value : from[random() % from.size()];
}

void expect_slow_masks(const Whole& whole, std::mt19937& random) {
  const auto compiled = compile_composite(whole.job);
  ASSERT_TRUE(compiled.has_value()) << whole.what << ": " << compiled.error().message;
  Matcher matcher(*compiled, tokens(), {.end_ids = {kEnd}});
  SlowGrammar::Chart chart = whole.slow.start(whole.root);
  std::vector<std::int32_t> taken;
  std::vector<std::uint32_t> mask(tokens()->mask_words());
  std::size_t ignored = 0;
  for (int step = 0; step < 16; ++step) {
    matcher.fill_mask(mask);
    ASSERT_EQ(mask, slow_mask(whole.slow, chart)) << whole.what << "\nbehind \"" << chart.text << "\"";
    const std::int32_t next = pick(mask, random);
    if (next == kEnd.value || (!taken.empty() && random() % 8 == 0)) {
      ASSERT_TRUE(next != kEnd.value || matcher.can_end()) << "a dead end in " << whole.what << " behind \"" << chart.text << "\"";
      const std::size_t back = taken.empty() ? 0 : 1 + random() % std::min<std::size_t>(taken.size(), 3);
      matcher.rollback(back);
      for (std::size_t i = 0; i < back; ++i) {
        whole.slow.retreat(chart, length_of(taken.back()));
        taken.pop_back();
      }
      continue;
    }
    ASSERT_TRUE(matcher.accept(TokenId{next})) << whole.what;
    ASSERT_TRUE(advance(whole.slow, chart, next, ignored)) << whole.what;
    taken.push_back(next);
  }
}

TEST(CompositeMasks, AreWhatASlowAcceptorTakesAcrossAllBorders) {
  const auto seed = static_cast<std::uint32_t>(GTEST_FLAG_GET(random_seed));
  std::cout << "seed " << seed << " (--gtest_random_seed)\n";
  for (std::uint32_t i = 0; i < 30 && !::testing::Test::HasFailure(); ++i) {
    std::mt19937 random(seed * 1000U + i);
    const Whole whole = random_whole(random);
    if (whole.job.body && !whole.slow.productive_rules()[static_cast<std::size_t>(whole.root)]) {
      continue;
    }
    expect_slow_masks(whole, random);
  }
}

/// The end of thinking, then the body: ids that spell the same are text on the one side and refused on the other.
TEST(CompositeMasks, TheTextOfTheEndIdEndsNothing) {
  CompositeJob job{.reasoning_end_ids = {TokenId{kThinkEnd}}, .dsml_token = TokenId{kMarker}};
  job.body = CompositeJob::Body{.kind = GrammarKind::regex, .text = "[0-9]+", .options = {}};
  const auto grammar = compile_composite(job);
  ASSERT_TRUE(grammar.has_value());
  Matcher matcher(*grammar, tokens(), {.end_ids = {kEnd}});
  const TokenId spelled{kFirstWord};  // "</think>" in letters
  ASSERT_EQ(tokens()->text(spelled), "</think>");
  ASSERT_TRUE(matcher.accept(spelled));
  EXPECT_FALSE(matcher.can_end());
  ASSERT_TRUE(matcher.accept(byte_token('x')));  // still free
  ASSERT_TRUE(matcher.accept(TokenId{kThinkEnd}));
  EXPECT_FALSE(matcher.accept(spelled));
  EXPECT_FALSE(matcher.accept(TokenId{kThinkEnd}));
  ASSERT_TRUE(matcher.accept(byte_token('7')));
  matcher.rollback(2);
  ASSERT_TRUE(matcher.accept(byte_token('y')));  // thinking again
}

}  // namespace
}  // namespace deepinfer::grammar
