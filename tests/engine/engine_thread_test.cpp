// The engine from many threads: every request gets its tokens and exactly one end, whatever callers do and whenever.
#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <latch>
#include <thread>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using engine::GenerationRequest;
using namespace std::chrono_literals;

/// A reply that a test thread waits for.
class SharedReply {
 public:
  engine::OutputSink sink() {
    return [this](engine::Output&& output) {
      const std::scoped_lock lock(mutex_);
      reply_.take(output);
      changed_.notify_all();
    };
  }
  Reply wait() {
    std::unique_lock lock(mutex_);
    check(changed_.wait_for(lock, 60s, [this] { return reply_.finish.has_value(); }), "the request ends");
    return reply_;
  }
  void wait_for_tokens(std::size_t num_tokens) {
    std::unique_lock lock(mutex_);
    check(changed_.wait_for(lock, 60s, [&] { return reply_.tokens.size() >= num_tokens; }), "the tokens come");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Reply reply_;
};

struct ThreadHarness {
  explicit ThreadHarness(const HarnessOptions& options = {})
      : geometry{.positions_per_block = options.positions_per_block,
                 .num_blocks = options.num_blocks + 1,
                 .num_slots = options.max_requests + 1},
        model(geometry, kVocab),
        engine(std::make_unique<engine::EngineThread>(std::make_unique<engine::Engine>(
            fake_parts(model, geometry), engine::EngineOptions{.max_requests = options.max_requests,
                                                               .max_batched_tokens = options.max_batched_tokens,
                                                               .max_model_len = options.max_model_len,
                                                               .max_queue = options.max_queue}))) {}

  kvcache::CacheGeometry geometry;
  FakeModel model;
  std::unique_ptr<engine::EngineThread> engine;
};

/// With 150 tokens to go a request cannot end by itself while a test does something.
void slow_step(std::span<const model::Chunk> /*chunks*/) { std::this_thread::sleep_for(20ms); }

GenerationRequest long_request() { return {.prompt = {{5}, {9}}, .sampling = {.temperature = 0.0}, .max_tokens = 150, .ignore_eos = true}; }

TEST(EngineThread, ChoicesAreSubmittedTogetherAndCountEach) {
  std::mt19937_64 random(11);
  ThreadHarness harness({.max_requests = 4, .max_queue = 0});
  GenerationRequest request{.prompt = random_prompt(random, 9), .sampling = {.temperature = 1.0}, .max_tokens = 12};
  std::array<SharedReply, 3> replies;
  const auto choices = [&](std::size_t num_choices) {
    std::vector<engine::Choice> out;
    for (std::size_t i = 0; i < num_choices; ++i) {
      out.push_back({.seed = 100 + i, .sink = replies[i % replies.size()].sink()});
    }
    return out;
  };
  const auto refused = harness.engine->submit_choices(request, choices(5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  const auto ids = harness.engine->submit_choices(request, choices(3));
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->size(), 3U);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    GenerationRequest single = request;
    single.sampling.seed = 100 + i;
    EXPECT_EQ(replies[i].wait().tokens, alone(single).tokens);
  }
  harness.engine->drain(1s);
  EXPECT_EQ(harness.engine->stats().num_finished, 3);
}

TEST(EngineThread, ManyThreadsGetWhatTheyWouldGetAlone) {
  ThreadHarness harness({.max_requests = 5, .max_batched_tokens = 16, .max_model_len = 100, .num_blocks = 40});
  std::vector<std::jthread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&harness, thread] {
      std::mt19937_64 random(100 + thread);
      for (int i = 0; i < 12; ++i) {
        const GenerationRequest request = random_request(random, 40, 30);
        SharedReply shared;
        const auto id = harness.engine->submit(request, shared.sink());
        ASSERT_TRUE(id);
        const bool cancels = random() % 4 == 0;
        if (cancels) {
          harness.engine->cancel(*id);
        }
        const Reply reply = shared.wait();
        const Reply expected = alone(request);
        if (cancels && reply.finish->reason == FinishReason::cancelled) {
          ASSERT_LE(reply.tokens.size(), expected.tokens.size());
        } else {
          ASSERT_EQ(reply.tokens, expected.tokens);
          ASSERT_EQ(reply.finish->reason, expected.finish->reason);
        }
      }
    });
  }
  threads.clear();
  harness.engine->drain(60s);
  const engine::EngineStats stats = harness.engine->stats();
  EXPECT_EQ(stats.num_finished, 48);
  EXPECT_EQ(stats.num_blocks_used, 0);
  EXPECT_EQ(stats.num_slots_used, 0);
}

TEST(EngineThread, ACancelTakesEffectBeforeTheNextStep) {
  ThreadHarness harness;
  std::atomic<int> num_forwards{0};
  std::latch in_third_step(1);
  std::latch go_on(1);
  harness.model.on_forward = [&](std::span<const model::Chunk>) {
    if (++num_forwards == 3) {
      in_third_step.count_down();
      go_on.wait();
    }
  };
  SharedReply shared;
  const auto id = harness.engine->submit(long_request(), shared.sink());
  ASSERT_TRUE(id);
  in_third_step.wait();
  harness.engine->cancel(*id);
  harness.engine->cancel(*id);
  go_on.count_down();
  const Reply reply = shared.wait();
  EXPECT_EQ(reply.finish->reason, FinishReason::cancelled);
  EXPECT_EQ(reply.tokens.size(), 3U);
  EXPECT_EQ(num_forwards, 3);
}

TEST(EngineThread, CancellingWhatIsOverDoesNothing) {
  ThreadHarness harness;
  SharedReply shared;
  GenerationRequest request = long_request();
  request.max_tokens = 1;
  const auto id = harness.engine->submit(request, shared.sink());
  shared.wait();
  for (int i = 0; i < 5'000; ++i) {
    harness.engine->cancel(*id);
    harness.engine->cancel({123'456});
  }
  SharedReply next;
  ASSERT_TRUE(harness.engine->submit(request, next.sink()));
  EXPECT_EQ(next.wait().finish->reason, FinishReason::length);
}

TEST(EngineThread, AFullQueueRefusesAndTakesAgainOnceSomebodyIsDone) {
  ThreadHarness harness({.max_requests = 1, .max_batched_tokens = 8, .max_queue = 2});
  std::latch go_on(1);
  harness.model.on_forward = [&](std::span<const model::Chunk>) { go_on.wait(); };
  std::array<SharedReply, 3> replies;
  std::vector<RequestId> ids;
  for (SharedReply& reply : replies) {
    ids.push_back(*harness.engine->submit(long_request(), reply.sink()));
  }
  const auto refused = harness.engine->submit(long_request(), [](engine::Output&&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  harness.engine->cancel(ids[1]);
  go_on.count_down();
  EXPECT_EQ(replies[1].wait().finish->reason, FinishReason::cancelled);
  SharedReply next;
  EXPECT_TRUE(harness.engine->submit(long_request(), next.sink()));
  next.wait();
}

TEST(EngineThread, ABadRequestIsRefusedOnTheCallersThread) {
  ThreadHarness harness;
  const auto refused = harness.engine->submit({.prompt = {}}, [](engine::Output&&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
}

TEST(EngineThread, DrainWaitsForWhatRunsAndRefusesMore) {
  ThreadHarness harness;
  std::array<SharedReply, 4> replies;
  for (SharedReply& reply : replies) {
    ASSERT_TRUE(harness.engine->submit(long_request(), reply.sink()));
  }
  harness.engine->drain(60s);
  EXPECT_EQ(harness.engine->stats().num_finished, 4);
  for (SharedReply& reply : replies) {
    EXPECT_EQ(reply.wait().finish->reason, FinishReason::length);
  }
  const auto refused = harness.engine->submit(long_request(), [](engine::Output&&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::cancelled);
  harness.engine->drain(0s);
}

TEST(EngineThread, DrainCancelsWhatIsLeftAfterTheTimeout) {
  ThreadHarness harness;
  harness.model.on_forward = slow_step;
  SharedReply shared;
  ASSERT_TRUE(harness.engine->submit(long_request(), shared.sink()));
  shared.wait_for_tokens(2);
  harness.engine->drain(5ms);
  EXPECT_EQ(shared.wait().finish->reason, FinishReason::cancelled);
  EXPECT_EQ(harness.engine->stats().num_blocks_used, 0);
}

TEST(EngineThread, TheDestructorGivesEverySinkItsEnd) {
  ThreadHarness harness({.max_requests = 2, .max_batched_tokens = 8});
  harness.model.on_forward = slow_step;
  std::array<SharedReply, 6> replies;
  for (SharedReply& reply : replies) {
    ASSERT_TRUE(harness.engine->submit(long_request(), reply.sink()));
  }
  replies[0].wait_for_tokens(1);
  harness.engine.reset();
  for (SharedReply& reply : replies) {
    EXPECT_EQ(reply.wait().finish->reason, FinishReason::cancelled);
  }
}

TEST(EngineThread, AnIdleEngineSleeps) {
  ThreadHarness harness;
  SharedReply shared;
  GenerationRequest request = long_request();
  request.max_tokens = 2;
  ASSERT_TRUE(harness.engine->submit(request, shared.sink()));
  shared.wait();
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(300ms);
  const double busy_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_seconds, 0.1);
}

}  // namespace
}  // namespace deepinfer::test
