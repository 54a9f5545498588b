// Penalties, bias and min-p against their plain definitions.
#include "sampling/adjustments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "rows.h"
#include "sampling/distribution.h"
#include "sampling/sampler.h"

namespace deepinfer::sampling {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr std::int32_t kVocab = 200;

std::vector<TokenId> random_tokens(std::mt19937_64& random, std::size_t count) {
  std::uniform_int_distribution<std::int32_t> columns(0, kVocab - 1);
  std::vector<TokenId> out(count);
  std::ranges::generate(out, [&] { return TokenId{columns(random)}; });
  return out;
}

/// The definition, column by column.
std::vector<float> plainly_adjusted(std::vector<float> row, const Adjustments& wanted, const std::vector<TokenId>& prompt,
                                    const std::vector<TokenId>& generated) {
  for (std::int32_t column = 0; column < static_cast<std::int32_t>(row.size()); ++column) {
    const TokenId token{column};
    float& logit = row[static_cast<std::size_t>(column)];
    const auto num_generated = std::ranges::count(generated, token);
    if (num_generated > 0 || std::ranges::count(prompt, token) > 0) {
      logit = logit > 0 ? logit / wanted.repetition_penalty : logit * wanted.repetition_penalty;
    }
    if (num_generated > 0) {
      logit -= wanted.presence_penalty + wanted.frequency_penalty * static_cast<float>(num_generated);
    }
    for (const LogitBias& entry : wanted.bias) {
      logit += entry.token == token ? entry.bias : 0.0F;
    }
  }
  return row;
}

TEST(Adjustments, AreTheirDefinitionOnRandomRows) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    const std::vector<TokenId> prompt = random_tokens(random, 30);
    const std::vector<TokenId> generated = random_tokens(random, 80);
    std::vector<float> row = random_row(random, kVocab, 4.0F);
    row[5] = kMasked;
    const Adjustments wanted{
        .repetition_penalty = round % 3 == 0 ? 1.0F : 1.3F,
        .presence_penalty = round % 2 == 0 ? 0.0F : -0.7F,
        .frequency_penalty = round % 5 == 0 ? 0.0F : 0.4F,
        .bias = round % 4 == 0 ? std::vector<LogitBias>{} : std::vector<LogitBias>{{TokenId{3}, 5.0F}, {TokenId{5}, 100.0F}}};
    TokenHistory history(kVocab, prompt, 80);
    for (const TokenId token : generated) {
      history.add(token);
    }
    const std::vector<float> expected = plainly_adjusted(row, wanted, prompt, generated);
    adjust(row, wanted, history);
    EXPECT_EQ(row, expected) << "round " << round;
    EXPECT_EQ(row[5], kMasked) << "a masked column stays masked";
  }
}

TEST(Adjustments, AHistoryCountsEachTokenOnce) {
  TokenHistory history(10, std::vector<TokenId>{{3}, {4}, {3}}, 5);
  history.add({4});
  history.add({4});
  history.add({7});
  ASSERT_EQ(history.seen().size(), 3U);
  const auto seen = [&history](std::size_t i) { return std::pair(history.seen()[i].column, history.seen()[i].num_generated); };
  EXPECT_EQ(seen(0), std::pair(3, 0));
  EXPECT_EQ(seen(1), std::pair(4, 2));
  EXPECT_EQ(seen(2), std::pair(7, 1));
}

TEST(Adjustments, NothingWantedChangesNothing) {
  EXPECT_FALSE(Adjustments{}.change_logits());
  std::mt19937_64 random(2);
  std::vector<float> row = random_row(random, kVocab, 4.0F);
  const std::vector<float> before = row;
  adjust(row, {}, {});
  EXPECT_EQ(row, before);
}

TEST(MinP, KeepsTheColumnsOfItsDefinition) {
  std::mt19937_64 random(5);
  Distribution distribution(kVocab);
  for (const double temperature : {0.5, 1.0, 1.8}) {
    for (const double min_p : {0.001, 0.05, 0.5, 1.0}) {
      const std::vector<float> row = random_row(random, kVocab, 3.0F, 4);
      ASSERT_TRUE(distribution.read(row, {.temperature = temperature, .min_p = min_p}));
      const double max = *std::ranges::max_element(row);
      std::vector<std::int32_t> expected;
      double total = 0.0;
      for (std::int32_t c = 0; c < kVocab; ++c) {
        const double ratio = std::exp((row[static_cast<std::size_t>(c)] - max) / temperature);
        if (ratio >= min_p) {
          expected.push_back(c);
          total += ratio;
        }
      }
      EXPECT_EQ(std::vector(distribution.columns().begin(), distribution.columns().end()), expected);
      EXPECT_NEAR(distribution.logprob(distribution.argmax(), LogprobKind::processed), -std::log(total), 1e-5);
    }
  }
}

TEST(MinP, TheShortestOfThreePrefixesIsKept) {
  Distribution distribution(4);
  const std::vector<float> row = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  const auto num_kept = [&](const Params& params) {
    EXPECT_TRUE(distribution.read(row, params));
    return distribution.columns().size();
  };
  EXPECT_EQ(num_kept({.top_p = 0.95, .top_k = 3, .min_p = 0.6}), 2U);
  EXPECT_EQ(num_kept({.top_p = 0.35, .top_k = 3, .min_p = 0.1}), 1U);
  EXPECT_EQ(num_kept({.top_p = 0.95, .top_k = 1, .min_p = 0.1}), 1U);
}

TEST(RawLogprobs, AreThoseOfTheRowBeforeAdjustments) {
  std::mt19937_64 random(8);
  const std::vector<float> raw = random_row(random, kVocab, 3.0F);
  std::vector<float> adjusted = raw;
  adjust(adjusted, {.bias = {{TokenId{17}, 50.0F}, {TokenId{18}, -50.0F}}}, {});
  Sampler plain(kVocab);
  Sampler biased(kVocab);
  for (const double temperature : {0.0, 0.7, 1.0}) {
    ASSERT_TRUE(plain.sample(raw, {.temperature = temperature}, {.seed = 1, .position = 4}));
    const auto token = biased.sample(adjusted, {.temperature = temperature}, {.seed = 1, .position = 4}, raw);
    ASSERT_TRUE(token);
    EXPECT_EQ(*token, TokenId{17});
    for (const std::int32_t column : {0, 17, 18, 150}) {
      EXPECT_EQ(biased.distribution().logprob(column, LogprobKind::raw), plain.distribution().logprob(column, LogprobKind::raw));
    }
    const auto expected = plain.distribution().top(5, LogprobKind::raw);
    const auto top = biased.distribution().top(5, LogprobKind::raw);
    EXPECT_TRUE(std::ranges::equal(top, expected));
    EXPECT_EQ(biased.distribution().top(1, LogprobKind::processed).front().token, TokenId{17});
  }
}

}  // namespace
}  // namespace deepinfer::sampling
