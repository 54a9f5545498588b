// What the choice of drafts is made of: curves of measured times, corrected confidences, and single choices.
// Whole runs: draft_policy_simulation_test.cpp.
#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/step_costs.h"

namespace deepinfer::test {
namespace {

void add(engine::StepCosts& costs, std::int32_t size, double seconds, int times = 9) {
  for (int i = 0; i < times; ++i) {
    costs.add(size, seconds);
  }
}

TEST(StepCosts, AStraightLineBetweenMeasuredSizes) {
  engine::StepCosts costs(100);
  EXPECT_EQ(costs.seconds(4), 0);
  add(costs, 2, 1);
  EXPECT_DOUBLE_EQ(costs.seconds(1), 1.0);
  EXPECT_DOUBLE_EQ(costs.seconds(9), 1.0);
  add(costs, 6, 3);
  EXPECT_DOUBLE_EQ(costs.seconds(1), 1.0);
  EXPECT_DOUBLE_EQ(costs.seconds(4), 2.0);
  EXPECT_DOUBLE_EQ(costs.seconds(6), 3.0);
  EXPECT_DOUBLE_EQ(costs.seconds(10), 5.0) << "goes on as before";
}

TEST(StepCosts, LargerSizesNeverTakeLess) {
  engine::StepCosts costs(12);
  add(costs, 2, 1);
  add(costs, 6, 3);
  add(costs, 8, 2);
  EXPECT_NEAR(costs.seconds(6), 2.5, 0.02) << "older measurements count a little less";
  EXPECT_DOUBLE_EQ(costs.seconds(8), costs.seconds(6));
  for (int i = 0; i < 16; ++i) {
    costs.add(6, 1.5);  // the old measurements are forgotten
  }
  EXPECT_DOUBLE_EQ(costs.seconds(6), 1.5);
  EXPECT_DOUBLE_EQ(costs.seconds(8), 2);
}

TEST(StepCosts, ADisturbedStepHardlyCounts) {
  engine::StepCosts costs(12);
  add(costs, 3, 1, 15);
  costs.add(3, 100);
  EXPECT_NEAR(costs.seconds(3), 1.03, 0.01);
}

TEST(StepCosts, ASingleMeasurementCountsAsHalfAgainTheExpectedAtMost) {
  engine::StepCosts costs(12);
  add(costs, 2, 1);
  costs.add(8, 50);
  EXPECT_DOUBLE_EQ(costs.seconds(8), 1.5);
  EXPECT_FALSE(costs.knows(8));
  add(costs, 8, 2, 2);
  EXPECT_TRUE(costs.knows(8));
  EXPECT_TRUE(costs.knows(6));
  EXPECT_TRUE(costs.knows(12));
  EXPECT_FALSE(costs.knows(5));
}

TEST(StepCosts, StepsAtPowersOfTwoStayWhereTheyAre) {
  engine::StepCosts costs(4096);
  for (const std::int32_t edge : {16, 32, 64, 256, 1024}) {
    add(costs, edge, edge);
    add(costs, edge + 1, 1.5 * edge);
    EXPECT_DOUBLE_EQ(costs.seconds(edge), edge);
    EXPECT_DOUBLE_EQ(costs.seconds(edge + 1), 1.5 * edge);
  }
  for (std::int32_t size = 2; size <= 4096; ++size) {
    EXPECT_GE(costs.seconds(size), costs.seconds(size - 1)) << size;
  }
}

TEST(DraftPolicy, ChancesFollowWhatComesOfConfidences) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal(0, 1.5);
  for (const double shift : {-3.0, 0.0, 2.0}) {
    engine::DraftPolicy policy(2, 64);
    EXPECT_DOUBLE_EQ(policy.chance(0, 0), 0.5);
    for (int i = 0; i < 300; ++i) {
      const double logit = normal(random);
      policy.record_verdict(0, logit, uniform(random) < 1 / (1 + std::exp(-logit - shift)));
    }
    EXPECT_NEAR(policy.chance(0, 0.5), 1 / (1 + std::exp(-0.5 - shift)), 0.08);
    EXPECT_DOUBLE_EQ(policy.chance(1, 0), 0.5) << "the other place saw nothing";
  }
}

/// A policy that knows its machine: forwards take `base` + `slope` seconds per row, passes `pass` seconds.
struct Taught {
  double base = 0;
  double slope = 0;
  double pass = 0;
  engine::DraftPolicy policy{3, 256};
  std::vector<float> rates = {0.9F, 0.8F, 0.7F};
  int num_drafted = 0;

  bool step(std::int32_t num_requests) {
    const bool drafts = policy.wants_drafts(num_requests);
    engine::StepReport report{.num_requests = num_requests, .num_rows = num_requests, .num_tokens = num_requests, .drafted = drafts};
    if (drafts) {
      const std::vector<scheduler::DraftRates> all(static_cast<std::size_t>(num_requests), scheduler::DraftRates{rates});
      policy.note_pass();
      report.num_rows = policy.choose_rows(all, 256);
      policy.note_rates(all);
      report.draft_seconds = pass;
      double accepted = 0;
      for (const float rate : rates) {
        accepted += static_cast<double>(rate);
      }
      report.num_tokens += std::lround(accepted * (report.num_rows - num_requests) / static_cast<double>(rates.size()));
      ++num_drafted;
    }
    report.seconds = base + slope * report.num_rows;
    policy.record(report);
    return drafts;
  }
};

TEST(DraftPolicy, TakesTheFasterWayAndSometimesTriesTheOther) {
  for (const double slope : {0.01, 1.0}) {
    Taught taught{.base = 1, .slope = slope, .pass = slope};
    for (int i = 0; i < 2000; ++i) {
      taught.step(3);
    }
    const int num_seldom = slope < 0.1 ? 2000 - taught.num_drafted : taught.num_drafted;
    EXPECT_GT(num_seldom, 10) << slope;
    EXPECT_LT(num_seldom, 80) << slope;
  }
}

TEST(DraftPolicy, TheDraftPassIsPartOfTheTime) {
  // A row costs a fifth of a step's base: by forwards alone two drafts would be best, but the pass has to pay for itself, so three are.
  Taught taught{.base = 0.2, .slope = 0.2, .pass = 2};
  taught.rates = {0.9F, 0.8F, 0.35F};
  for (int i = 0; i < 30; ++i) {
    taught.step(1);
  }
  const std::vector<scheduler::DraftRates> one{{taught.rates}};
  EXPECT_EQ(taught.policy.choose_rows(one, 256), 3) << "drafts that no pass was made for";
  taught.policy.note_pass();
  EXPECT_EQ(taught.policy.choose_rows(one, 256), 4);
}

TEST(DraftPolicy, PlainStepsSayNothingOfTheDrafter) {
  Taught taught{.base = 1, .slope = 0.01, .pass = 0.01};
  for (int i = 0; i < 100; ++i) {
    taught.step(2);
  }
  const double usual = taught.policy.usual_rate(1);
  const double full = taught.policy.expected(2).full;
  const std::vector<scheduler::DraftRates> none(2);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(taught.policy.choose_rows(none, 256), 2);
    taught.policy.note_rates(none);
  }
  EXPECT_EQ(taught.policy.usual_rate(1), usual);
  EXPECT_EQ(taught.policy.expected(2).full, full);
}

TEST(StepCosts, SizesNearEachOtherAreKnownTogether) {
  engine::StepCosts costs(100);
  for (const std::int32_t size : {80, 96}) {
    EXPECT_FALSE(costs.knows(90));
    costs.add(size, 1);
  }
  EXPECT_TRUE(costs.knows(90));
}

TEST(DraftPolicy, KnowsAfterSomeStepsAndLearnsNewLoads) {
  Taught taught{.base = 0.1, .slope = 1, .pass = 1};
  for (const std::int32_t num_requests : {1, 2, 3, 4, 8, 16}) {
    const int before = taught.num_drafted;
    for (int i = 0; i < 20; ++i) {
      taught.step(num_requests);
    }
    EXPECT_LE(taught.num_drafted - before, num_requests == 1 ? 12 : 4) << num_requests;
  }
}

}  // namespace
}  // namespace deepinfer::test
