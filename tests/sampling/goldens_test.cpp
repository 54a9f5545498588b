// Every vector of the reference's sampling.json: words, noise, filtered log-probabilities, tokens of both rules, wide draws.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/json.h"
#include "sampling/distribution.h"
#include "sampling/noise.h"
#include "sampling/rejection.h"
#include "sampling/sampler.h"

namespace deepinfer::sampling {
namespace {

const json::Value& goldens() {
  static const json::Value value = [] {
    std::ifstream file(DEEPINFER_TEST_DATA "/goldens/sampling.json");
    std::stringstream text;
    text << file.rdbuf();
    auto parsed = json::parse(text.str());
    EXPECT_TRUE(parsed) << "tests/data/goldens/sampling.json must be there";
    return parsed ? *parsed : json::Value();
  }();
  return value;
}

const json::Array& cases(std::string_view name) { return *goldens().find(name)->as_array(); }

std::int64_t integer(const json::Value& value, std::string_view key) { return *value.find(key)->as_number()->as_int64(); }

double number(const json::Value& value, std::string_view key) { return value.find(key)->as_number()->as_double(); }

TokenId token(const json::Value& value, std::string_view key) { return {static_cast<std::int32_t>(integer(value, key))}; }

/// 64-bit integers that do not fit a double are decimal strings.
std::uint64_t seed(const json::Value& value) { return std::stoull(*value.find("seed")->as_string()); }

RandomKey random_key(const json::Value& value) { return {.seed = seed(value), .position = integer(value, "position")}; }

/// A list of numbers; null is −infinity.
std::vector<float> row(const json::Value& value, std::string_view key) {
  std::vector<float> out;
  for (const json::Value& item : *value.find(key)->as_array()) {
    out.push_back(item.is_null() ? -std::numeric_limits<float>::infinity() : static_cast<float>(item.as_number()->as_double()));
  }
  return out;
}

Params params(const json::Value& value) {
  return {.temperature = number(value, "temperature"),
          .top_p = number(value, "top_p"),
          .top_k = static_cast<std::int32_t>(integer(value, "top_k"))};
}

/// The processed log-probabilities of a row as a full row.
std::vector<float> filtered(const std::vector<float>& logits, const Params& with) {
  Distribution distribution(static_cast<std::int32_t>(logits.size()));
  EXPECT_TRUE(distribution.read(logits, with));
  std::vector<float> out(logits.size());
  distribution.scatter(out);
  return out;
}

TokenId coupled(const std::vector<float>& logits, const Params& with, RandomKey key) {
  Distribution distribution(static_cast<std::int32_t>(logits.size()));
  EXPECT_TRUE(distribution.read(logits, with));
  return sample_coupled(distribution, key, NoiseBound());
}

TEST(SamplingGoldens, WordsAreThoseOfTheReference) {
  ASSERT_FALSE(cases("words").empty());
  for (const json::Value& golden : cases("words")) {
    WordStream words(random_key(golden), static_cast<Purpose>(integer(golden, "case")));
    for (const json::Value& word : *golden.find("words")->as_array()) {
      EXPECT_EQ(words.next(), static_cast<std::uint32_t>(*word.as_number()->as_int64()));
    }
  }
}

TEST(SamplingGoldens, NoiseIsThatOfTheReferenceUpToRounding) {
  ASSERT_FALSE(cases("gumbel").empty());
  for (const json::Value& golden : cases("gumbel")) {
    std::int32_t column = 0;
    for (const json::Value& value : *golden.find("values")->as_array()) {
      const double expected = value.as_number()->as_double();
      EXPECT_NEAR(noise_at(random_key(golden), column++), expected, 3e-7 * std::max(1.0, std::abs(expected)));
    }
  }
}

TEST(SamplingGoldens, LogProbabilitiesAndTokensAreThoseOfTheReference) {
  ASSERT_EQ(cases("sample").size(), 40U);
  for (const json::Value& golden : cases("sample")) {
    const std::vector<float> logits = row(golden, "logits");
    const std::vector<float> expected = row(golden, "log_probabilities");
    const std::vector<float> log_probs = filtered(logits, params(golden));
    for (std::size_t c = 0; c < logits.size(); ++c) {
      if (std::isinf(expected[c])) {
        EXPECT_EQ(log_probs[c], expected[c]);
      } else {
        EXPECT_NEAR(log_probs[c], expected[c], 1e-6F * std::max(1.0F, std::abs(expected[c])));
      }
    }
    EXPECT_EQ(coupled(logits, params(golden), random_key(golden)), token(golden, "coupled_token"));
    RejectionRule rule(static_cast<std::int32_t>(logits.size()));
    EXPECT_EQ(rule.sample(log_probs, random_key(golden)), token(golden, "rejection_token"));
    EXPECT_EQ(rule.sample_draft(log_probs, random_key(golden)), token(golden, "rejection_draft_token"));
  }
}

TEST(SamplingGoldens, DraftsAreJudgedAsByTheReference) {
  ASSERT_EQ(cases("verify").size(), 40U);
  int num_accepted = 0;
  for (const json::Value& golden : cases("verify")) {
    const std::vector<float> target = row(golden, "target_logits");
    const std::vector<float> draft = row(golden, "draft_logits");
    const RandomKey key = random_key(golden);
    const json::Value& by_coupling = *golden.find("coupled");
    const TokenId proposal = coupled(draft, params(golden), key);
    const TokenId own = coupled(target, params(golden), key);
    EXPECT_EQ(proposal, token(by_coupling, "proposal"));
    EXPECT_EQ(own, token(by_coupling, "token"));
    EXPECT_EQ(proposal == own, *by_coupling.find("accepted")->as_bool());

    const json::Value& by_rejection = *golden.find("rejection");
    const std::vector<float> target_log_probs = filtered(target, params(golden));
    const std::vector<float> draft_log_probs = filtered(draft, params(golden));
    RejectionRule rule(static_cast<std::int32_t>(target.size()));
    const TokenId drawn = rule.sample_draft(draft_log_probs, key);
    EXPECT_EQ(drawn, token(by_rejection, "proposal"));
    const Verdict verdict = rule.verify(target_log_probs, draft_log_probs, drawn, key);
    EXPECT_EQ(verdict, (Verdict{.accepted = *by_rejection.find("accepted")->as_bool(), .token = token(by_rejection, "token")}));
    num_accepted += verdict.accepted ? 1 : 0;
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_LT(num_accepted, 40);
}

TEST(SamplingGoldens, WideDrawsUseTheLanesOfTheReference) {
  ASSERT_EQ(cases("wide_draws").size(), 1U);
  const json::Value& golden = cases("wide_draws").front();
  std::vector<double> exact(10'000);
  double total = 0.0;
  for (std::size_t c = 0; c < exact.size(); ++c) {
    exact[c] = 1.0 / static_cast<double>(c + 1);
    total += exact[c];
  }
  std::vector<float> weights;
  for (const double weight : exact) {
    weights.push_back(static_cast<float>(weight / total));
  }
  RejectionRule rule(static_cast<std::int32_t>(weights.size()));
  std::uint64_t case_seed = 0;
  for (const json::Value& expected : *golden.find("tokens")->as_array()) {
    const RandomKey key{.seed = case_seed++, .position = integer(golden, "position")};
    EXPECT_EQ(rule.draw(weights, WordStream(key, Purpose::fresh)).value, *expected.as_number()->as_int64());
  }
}

}  // namespace
}  // namespace deepinfer::sampling
