// The worked examples of docs/spec/engine.md 8.3, and the best choice of small cases found by trying everything.
#include "scheduler/verification.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>

namespace deepinfer::scheduler {
namespace {

using Rates = std::vector<std::vector<float>>;

std::vector<DraftRates> views(const Rates& rates) {
  std::vector<DraftRates> out;
  for (const auto& of_request : rates) {
    out.push_back({of_request});
  }
  return out;
}

/// The time of the smallest measured size that is large enough; 0 beyond.
StepSeconds stairs(std::map<std::int32_t, double> curve) {
  return [curve = std::move(curve)](std::int32_t rows) {
    const auto size = curve.lower_bound(rows);
    return size == curve.end() ? 0.0 : size->second;
  };
}

std::vector<std::int32_t> drafts(VerificationPlan& plan, const Rates& rates, std::int32_t rows) {
  const auto out = plan.divide(views(rates), rows);
  return {out.begin(), out.end()};
}

TEST(Verification, TheWorkedExamples) {
  VerificationPlan plan;
  const StepSeconds curve = stairs({{1, 1.0}, {2, 1.05}, {4, 1.2}, {8, 1.8}, {12, 2.6}});
  const Rates first{{.9F, .8F, .6F}, {.5F, .2F, .1F}};
  EXPECT_EQ(plan.total_rows(views(first), 100, curve), 4);
  EXPECT_EQ(drafts(plan, first, 4), (std::vector<std::int32_t>{2, 0}));
  const Rates second{{.9F, .81F, .73F}, {.95F, .9F, .86F}};
  EXPECT_EQ(plan.total_rows(views(second), 100, curve), 8);
  EXPECT_EQ(drafts(plan, second, 8), (std::vector<std::int32_t>{3, 3}));
  const Rates third{{.5F, .25F}, {.5F, .25F}, {.5F, .25F}};
  EXPECT_EQ(plan.total_rows(views(third), 100, stairs({{4, 1.0}, {8, 1.2}, {16, 1.5}})), 8);
  EXPECT_EQ(drafts(plan, third, 8), (std::vector<std::int32_t>{2, 2, 1}));
}

TEST(Verification, WithoutTimesEverythingIsVerified) {
  VerificationPlan plan;
  const Rates rates{{.5F, .1F}, {}, {.9F}};
  EXPECT_EQ(plan.total_rows(views(rates), 100, [](std::int32_t) { return 0.0; }), 6);
  EXPECT_EQ(plan.total_rows(views(rates), 5, [](std::int32_t) { return 0.0; }), 5);
  EXPECT_EQ(drafts(plan, rates, 6), (std::vector<std::int32_t>{2, 0, 1}));
}

TEST(Verification, AConstantTimeVerifiesEverythingThatMayBeAccepted) {
  VerificationPlan plan;
  const Rates rates{{.5F, .1F, 0.F}, {1.F, 1.F}};
  EXPECT_EQ(plan.total_rows(views(rates), 100, [](std::int32_t) { return 2.0; }), 6);  // the draft of rate 0 adds nothing
}

TEST(Verification, LittleTrustVerifiesLess) {
  VerificationPlan plan;
  const Rates rates{{.9F, .8F}, {.7F, .6F}};
  const StepSeconds line = [](std::int32_t rows) { return 1.0 + 0.3 * rows; };
  EXPECT_EQ(plan.total_rows(views(rates), 100, line), 6);
  EXPECT_EQ(plan.total_rows(views(rates), 100, line, 0.5), 4);
  EXPECT_EQ(plan.total_rows(views(rates), 100, line, 0.1), 2);
  EXPECT_DOUBLE_EQ(plan.sum_of_rates(1), 0);
  EXPECT_NEAR(plan.sum_of_rates(4), 1.7, 1e-6);
  EXPECT_NEAR(plan.sum_of_rates(9), 3.0, 1e-6);
}

/// Every division of every number of rows, tried one by one.
double best_by_trying(const Rates& rates, std::size_t request, std::int32_t rows, double expected, const StepSeconds& seconds) {
  if (request == rates.size()) {
    return seconds(rows) > 0 ? expected / seconds(rows) : 0;
  }
  double best = 0;
  for (std::size_t taken = 0; taken <= rates[request].size(); ++taken) {
    double sum = expected + 1;
    for (std::size_t i = 0; i < taken; ++i) {
      sum += static_cast<double>(rates[request][i]);
    }
    best = std::max(best, best_by_trying(rates, request + 1, rows + 1 + static_cast<std::int32_t>(taken), sum, seconds));
  }
  return best;
}

TEST(Verification, IsTheOptimumOfSmallCases) {
  const unsigned seed = 4;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  VerificationPlan plan;
  for (int round = 0; round < 300; ++round) {
    Rates rates(1 + random() % 4);
    for (auto& of_request : rates) {
      float product = 1;
      for (std::size_t n = random() % 5; n > 0; --n) {
        product *= uniform(random);
        of_request.push_back(product);
      }
    }
    std::map<std::int32_t, double> curve;
    double time = 1;
    for (std::int32_t size = 1; size <= 24; size += 1 + static_cast<std::int32_t>(random() % 4)) {
      time += static_cast<double>(uniform(random)) * 0.4;
      curve[size] = time;
    }
    curve[24] = time;
    const StepSeconds seconds = stairs(curve);
    const std::int32_t rows = plan.total_rows(views(rates), 1000, seconds);
    const auto divided = drafts(plan, rates, rows);
    double expected = static_cast<double>(rates.size());
    for (std::size_t r = 0; r < rates.size(); ++r) {
      for (std::int32_t i = 0; i < divided[r]; ++i) {
        expected += static_cast<double>(rates[r][static_cast<std::size_t>(i)]);
      }
    }
    EXPECT_NEAR(expected / seconds(rows), best_by_trying(rates, 0, 0, 0, seconds), 1e-6) << "round " << round;
  }
}

}  // namespace
}  // namespace deepinfer::scheduler
