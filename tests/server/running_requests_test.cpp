#include "server/running_requests.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace deepinfer::server {
namespace {

TEST(RunningRequests, ARequestIsAbortedUnderEachOfItsNames) {
  RunningRequests running;
  int num_aborts = 0;
  auto entry = running.begin("anna", [&num_aborts] { ++num_aborts; });
  entry->add_name("x-1");
  entry->add_name("resp_1");
  EXPECT_EQ(running.abort("x-1"), 1U);
  EXPECT_EQ(running.abort("resp_1"), 1U);
  EXPECT_EQ(running.abort("other"), 0U);
  EXPECT_EQ(num_aborts, 2);
  entry.reset();
  EXPECT_EQ(running.abort("x-1"), 0U);
}

TEST(RunningRequests, TwoRequestsOfOneNameAreBothAborted) {
  RunningRequests running;
  int num_aborts = 0;
  auto first = running.begin("", [&num_aborts] { ++num_aborts; });
  auto second = running.begin("", [&num_aborts] { ++num_aborts; });
  first->add_name("same");
  second->add_name("same");
  EXPECT_EQ(running.abort("same"), 2U);
  first.reset();
  EXPECT_EQ(running.abort("same"), 1U);
}

TEST(RunningRequests, AnOwnerReachesItsOwnRequestsOnly) {
  RunningRequests running;
  auto entry = running.begin("anna", [] {});
  entry->add_name("r");
  const std::string anna = "anna";
  const std::string bert = "bert";
  EXPECT_EQ(running.abort("r", &bert), 0U);
  EXPECT_EQ(running.abort("r", &anna), 1U);
}

TEST(RunningRequests, AnOwnerIsBounded) {
  RunningRequests running(2);
  auto first = running.begin("anna", [] {});
  auto second = running.begin("anna", [] {});
  EXPECT_EQ(running.begin("anna", [] {}), nullptr);
  EXPECT_NE(running.begin("bert", [] {}), nullptr);
  first.reset();
  EXPECT_NE(running.begin("anna", [] {}), nullptr);
}

TEST(RunningRequests, ManyThreadsComeAndGo) {
  RunningRequests running;
  std::atomic<int> num_aborts = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&running, &num_aborts, t] {
      for (int i = 0; i < 500; ++i) {
        const auto entry = running.begin(std::to_string(t), [&num_aborts] { ++num_aborts; });
        entry->add_name("r" + std::to_string(i % 7));
        static_cast<void>(running.abort("r" + std::to_string(i % 5)));
      }
    });
  }
  threads.clear();
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(running.abort("r" + std::to_string(i)), 0U);
  }
}

}  // namespace
}  // namespace deepinfer::server
