// How a step's prefill budget is divided.
#include "scheduler/prefill_lanes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace deepinfer::scheduler {
namespace {

std::vector<PrefillShare> running(std::initializer_list<std::int32_t> wanted) {
  std::vector<PrefillShare> shares;
  for (const std::int32_t num_wanted : wanted) {
    shares.push_back({.num_wanted = num_wanted, .running = true});
  }
  return shares;
}

std::vector<std::int32_t> granted(const std::vector<PrefillShare>& shares) {
  std::vector<std::int32_t> out;
  for (const PrefillShare& share : shares) {
    out.push_back(share.num_granted);
  }
  return out;
}

std::vector<std::int32_t> divide(std::int32_t budget, std::vector<PrefillShare> shares) {
  divide_prefill_budget(budget, shares, [](std::size_t) { return true; });
  return granted(shares);
}

using Rows = std::vector<std::int32_t>;

TEST(PrefillLanes, APromptAloneGetsTheWholeBudget) { EXPECT_EQ(divide(64, running({100})), Rows{64}); }

TEST(PrefillLanes, TheOldestGetsThreeQuartersAndTheShortestTheRest) { EXPECT_EQ(divide(64, running({100, 40, 10})), (Rows{48, 6, 10})); }

TEST(PrefillLanes, TheOldestIsServedByBothLanesWhenItHasTheLeastWork) { EXPECT_EQ(divide(64, running({100, 90, 80})), (Rows{64, 0, 0})); }

TEST(PrefillLanes, AmongEqualWorkTheOlderGoesFirst) { EXPECT_EQ(divide(64, running({100, 40, 40})), (Rows{48, 16, 0})); }

TEST(PrefillLanes, WhatOneLaneCannotUseTheOtherGets) {
  EXPECT_EQ(divide(64, running({20, 30, 40})), (Rows{20, 30, 14}));
  EXPECT_EQ(divide(64, running({60, 2})), (Rows{60, 2}));
  EXPECT_EQ(divide(64, running({100, 2})), (Rows{62, 2}));
}

TEST(PrefillLanes, ABudgetOfOneServesTheOldest) { EXPECT_EQ(divide(1, running({9, 1})), (Rows{1, 0})); }

TEST(PrefillLanes, NothingToDivideOrNobodyToServe) {
  EXPECT_EQ(divide(0, running({9, 1})), (Rows{0, 0}));
  EXPECT_EQ(divide(9, {}), Rows{});
}

TEST(PrefillLanes, AShareThatIsNotAdmittedLeavesItsRowsToTheOthers) {
  std::vector<PrefillShare> shares = running({100, 100});
  shares[0].running = false;
  std::vector<std::size_t> asked;
  divide_prefill_budget(64, shares, [&](std::size_t i) {
    asked.push_back(i);
    return false;
  });
  EXPECT_EQ(granted(shares), (Rows{0, 64}));
  EXPECT_EQ(asked.front(), 0U);
}

TEST(PrefillLanes, AnAdmittedShareIsAskedForOnce) {
  std::vector<PrefillShare> shares = running({10, 10, 10});
  std::vector<std::size_t> asked;
  for (PrefillShare& share : shares) {
    share.running = false;
  }
  divide_prefill_budget(64, shares, [&](std::size_t i) {
    asked.push_back(i);
    return true;
  });
  EXPECT_EQ(asked, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(PrefillLanes, SpendsTheWholeBudgetOrSatisfiesEverybody) {
  const std::uint64_t seed = 20263;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 5'000; ++round) {
    std::vector<PrefillShare> shares(random() % 6);
    std::int32_t num_wanted = 0;
    for (PrefillShare& share : shares) {
      share = {.num_wanted = 1 + static_cast<std::int32_t>(random() % 50), .running = true};
      num_wanted += share.num_wanted;
    }
    const auto budget = static_cast<std::int32_t>(random() % 120);
    divide_prefill_budget(budget, shares, [](std::size_t) { return true; });
    std::int32_t num_granted = 0;
    for (const PrefillShare& share : shares) {
      ASSERT_LE(share.num_granted, share.num_wanted);
      num_granted += share.num_granted;
    }
    ASSERT_EQ(num_granted, std::min(budget, num_wanted));
    if (!shares.empty()) {
      ASSERT_GE(shares[0].num_granted, std::min(shares[0].num_wanted, budget - budget / kExpressFraction));
    }
  }
}

}  // namespace
}  // namespace deepinfer::scheduler
