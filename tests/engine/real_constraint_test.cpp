// Constraints end to end with nano: the schemas of the shared corpus, at several temperatures, at once or behind some free text. Every
// finished reply is valid by a validator of its own, every cut one the beginning of something valid, and neither speculation nor a
// cached prefix changes a token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "engine/nano_constraints.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using engine::SpeculationMode;

constexpr std::size_t kNumSchemas = 200;

std::vector<engine::GenerationRequest> requests_for(const std::vector<Case>& all, Nano& nano) {
  std::vector<engine::GenerationRequest> out;
  const std::vector<std::vector<TokenId>> starts = prompts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    engine::GenerationRequest request{.prompt = starts[i % starts.size()], .max_tokens = 4};
    request.sampling = {.temperature = static_cast<double>(i % 3) * 0.6, .seed = i};
    out.push_back(std::move(request));
  }
  const std::vector<Reply> free = nano.answer(out);
  for (std::size_t i = 0; i < all.size(); ++i) {
    out[i].max_tokens = 48;
    out[i].constraint = engine::Constraint{.grammar = all[i].grammar};
    if (i % 2 == 1 && free[i].tokens.size() >= 3) {  // the same seed says the same until then
      out[i].constraint->trigger_ids = {free[i].tokens[1], free[i].tokens[2]};
    }
  }
  return out;
}

/// The text behind the trigger; nullopt when that never came.
std::optional<std::string> constrained_text(const engine::GenerationRequest& request, const Reply& reply,
                                            const grammar::Vocabulary& words) {
  const std::vector<TokenId>& trigger = request.constraint->trigger_ids;
  auto from = reply.tokens.begin();
  if (!trigger.empty()) {
    from = std::search(reply.tokens.begin(), reply.tokens.end(), trigger.begin(), trigger.end());
    if (from == reply.tokens.end()) {
      return std::nullopt;
    }
    from += static_cast<std::ptrdiff_t>(trigger.size());
  }
  std::string out;
  for (; from != reply.tokens.end(); ++from) {
    out += words.text(*from);
  }
  return out;
}

TEST(RealConstraint, EveryReplyFitsItsSchemaAndNeitherSpeculationNorPrefixesChangeIt) {
  const std::vector<Case> all = cases(kNumSchemas);
  if (all.empty()) {
    std::cout << "absent: the grammar corpus beside the repository\n";
    return;
  }
  Nano plain(SpeculationMode::off, true);
  const std::vector<engine::GenerationRequest> requests = requests_for(all, plain);
  const std::vector<Reply> replies = plain.answer(requests);
  int num_finished = 0;
  int num_begun = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(json::to_text(all[i].schema));
    const auto text = constrained_text(requests[i], replies[i], plain.vocabulary());
    ASSERT_TRUE(replies[i].finish->reason == FinishReason::stop || replies[i].finish->reason == FinishReason::length);
    if (!text) {
      continue;
    }
    ++num_begun;
    if (replies[i].finish->reason == FinishReason::stop) {
      ++num_finished;
      const Result<json::Value> value = json::parse(*text);
      ASSERT_TRUE(value.has_value()) << *text;
      EXPECT_TRUE(is_valid(all[i].schema, *value)) << *text;
    }
  }
  std::printf("%zu schemas, %d begun, %d finished\n", all.size(), num_begun, num_finished);
  EXPECT_GT(num_begun, static_cast<int>(kNumSchemas) * 3 / 4);
  EXPECT_GT(num_finished, static_cast<int>(kNumSchemas) / 5);
  Nano drafting(SpeculationMode::full, false);
  const std::vector<Reply> drafted = drafting.answer(requests);
  EXPECT_GT(plain.engine().stats().num_cached_tokens, 5000);
  EXPECT_EQ(drafting.engine().stats().num_cached_tokens, 0);
  EXPECT_GT(drafting.engine().stats().speculation.num_accepted, 1000);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(drafted[i].tokens, replies[i].tokens) << json::to_text(all[i].schema);
  }
}

}  // namespace
}  // namespace deepinfer::test
