#include "server/exchange.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace deepinfer::server {
namespace {

constexpr std::size_t kMaxUnsentBytes = 10;

struct Bench {
  int num_wakes = 0;
  std::shared_ptr<TaskGate> gate = std::make_shared<TaskGate>([](Task task) { task(); });
  Exchange exchange{gate, kMaxUnsentBytes, [this] { ++num_wakes; }};
};

TEST(Exchange, AResponseWakesTheConnectionAndEndsTheExchange) {
  Bench bench;
  bench.exchange.respond({.status = 201});
  EXPECT_EQ(bench.num_wakes, 1);
  EXPECT_TRUE(bench.exchange.is_ended());
  ASSERT_TRUE(bench.exchange.take_response());
  EXPECT_FALSE(bench.exchange.take_response());
}

TEST(Exchange, OnlyTheFirstReplyCounts) {
  Bench bench;
  bench.exchange.begin_stream({.status = 200});
  bench.exchange.respond({.status = 500});
  EXPECT_FALSE(bench.exchange.take_response());
  EXPECT_EQ(bench.exchange.take_stream_head()->status, 200);
  EXPECT_FALSE(bench.exchange.is_ended());
}

TEST(Exchange, UnsentBytesPastTheLimitAbandonTheReader) {
  Bench bench;
  std::vector<Abandonment> seen;
  bench.exchange.on_abandoned([&seen](Abandonment why) { seen.push_back(why); });
  bench.exchange.begin_stream({});
  bench.exchange.write("12345");
  bench.exchange.write("67890");
  EXPECT_TRUE(seen.empty());
  bench.exchange.write("x");
  EXPECT_EQ(seen, std::vector{Abandonment::reader_too_slow});
  bench.exchange.write("y");
  EXPECT_EQ(bench.exchange.take_unsent(), "1234567890");
}

TEST(Exchange, TakenBytesMakeRoomForMore) {
  Bench bench;
  bench.exchange.begin_stream({});
  for (int i = 0; i < 5; ++i) {
    bench.exchange.write("1234567890");
    EXPECT_EQ(bench.exchange.take_unsent(), "1234567890");
  }
  EXPECT_FALSE(bench.exchange.is_abandoned());
}

TEST(Exchange, AbandonmentIsToldOnceAndAlsoToALateListener) {
  Bench bench;
  bench.exchange.abandon(Abandonment::client_gone);
  bench.exchange.abandon(Abandonment::shutting_down);
  std::vector<Abandonment> seen;
  bench.exchange.on_abandoned([&seen](Abandonment why) { seen.push_back(why); });
  EXPECT_EQ(seen, std::vector{Abandonment::client_gone});
}

TEST(Exchange, AnEndedReplyCannotBeAbandoned) {
  Bench bench;
  bool is_told = false;
  bench.exchange.on_abandoned([&is_told](Abandonment) { is_told = true; });
  bench.exchange.respond({});
  bench.exchange.abandon(Abandonment::client_gone);
  EXPECT_FALSE(is_told);
  EXPECT_FALSE(bench.exchange.is_abandoned());
}

TEST(Exchange, AStreamMaySayGoodbyeWhenTheServerStops) {
  Bench bench;
  bench.exchange.begin_stream({});
  bench.exchange.abandon(Abandonment::shutting_down);
  bench.exchange.write("bye");
  bench.exchange.end();
  EXPECT_EQ(bench.exchange.take_unsent(), "bye");
  EXPECT_TRUE(bench.exchange.is_ended());
}

TEST(Exchange, ADetachedExchangeWakesNobody) {
  Bench bench;
  bench.exchange.begin_stream({});
  bench.exchange.detach();
  bench.exchange.write("x");
  EXPECT_EQ(bench.num_wakes, 1);
}

TEST(TaskGate, AClosedGateDropsTasks) {
  int num_runs = 0;
  TaskGate gate([](Task task) { task(); });
  gate.post([&num_runs] { ++num_runs; });
  gate.close();
  gate.post([&num_runs] { ++num_runs; });
  EXPECT_EQ(num_runs, 1);
}

TEST(TaskGate, CloseWaitsForPostsOfOtherThreads) {
  for (int round = 0; round < 50; ++round) {
    auto is_alive = std::make_unique<bool>(true);
    TaskGate gate([&is_alive](Task task) {
      EXPECT_TRUE(*is_alive);
      task();
    });
    std::jthread poster([&gate] {
      for (int i = 0; i < 100; ++i) {
        gate.post([] {});
      }
    });
    gate.close();
    is_alive.reset();
  }
}

}  // namespace
}  // namespace deepinfer::server
