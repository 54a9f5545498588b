// A request's tokens do not depend on companions, chunks or preemption: bit-exact, over random requests with the fake model.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

std::mt19937_64 seeded(std::uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

void expect_same(const Reply& reply, const Reply& expected) {
  ASSERT_TRUE(reply.finish && expected.finish);
  EXPECT_EQ(reply.tokens, expected.tokens);
  EXPECT_EQ(reply.finish->reason, expected.finish->reason);
  EXPECT_EQ(reply.finish->num_generated, expected.finish->num_generated);
}

TEST(EngineLaw, BatchedWithCompanionsIsAlone) {
  std::mt19937_64 random = seeded(11);
  for (int round = 0; round < 12; ++round) {
    Harness harness({.max_requests = 4 + round, .max_batched_tokens = 16 + 4 * round});
    std::vector<std::pair<RequestId, engine::GenerationRequest>> requests;
    const std::size_t num_requests = 2 + random() % 15;
    while (requests.size() < num_requests || harness.engine.has_work()) {
      if (requests.size() < num_requests && random() % 2 == 0) {
        const auto request = random_request(random, 60, 30);
        requests.emplace_back(harness.submit(request), request);
      }
      harness.engine.step();
    }
    for (const auto& [id, request] : requests) {
      expect_same(harness.reply(id), alone(request));
    }
  }
}

TEST(EngineLaw, AnyChunkingIsTheWholePrompt) {
  std::mt19937_64 random = seeded(12);
  engine::GenerationRequest request{.prompt = random_prompt(random, 100), .max_tokens = 10, .ignore_eos = true};
  const Reply whole = alone(request);
  for (std::int32_t budget = 1; budget <= 100; ++budget) {
    Harness harness({.max_requests = 1, .max_batched_tokens = budget});
    const RequestId id = harness.submit(request);
    harness.run_to_the_end();
    expect_same(harness.reply(id), whole);
  }
}

TEST(EngineLaw, PreemptedAndResumedIsUninterrupted) {
  std::mt19937_64 random = seeded(13);
  std::int64_t num_preemptions = 0;
  for (int round = 0; round < 8; ++round) {
    Harness harness({.max_requests = 8, .max_batched_tokens = 20, .max_model_len = 100, .num_blocks = 26});
    std::vector<std::pair<RequestId, engine::GenerationRequest>> requests;
    for (int i = 0; i < 10; ++i) {
      auto request = random_request(random, 30, 60);
      request.ignore_eos = true;
      requests.emplace_back(harness.submit(request), request);
    }
    harness.run_to_the_end();
    num_preemptions += harness.engine.stats().num_preemptions;
    for (const auto& [id, request] : requests) {
      expect_same(harness.reply(id), alone(request));
    }
  }
  EXPECT_GT(num_preemptions, 40);
}

/// With and without a prefix cache and overlap, with room for few or all of the preempted; requests are called off in between.
TEST(EngineLaw, SwappedAndRestoredIsKept) {
  std::mt19937_64 random = seeded(16);
  std::int64_t num_restored = 0;
  std::int64_t num_computed_again = 0;
  for (int round = 0; round < 16; ++round) {
    Harness harness({.max_requests = 8,
                     .max_batched_tokens = 20,
                     .max_model_len = 100,
                     .num_blocks = 26,
                     .num_extra_slots = round % 3,
                     .overlap_depth = round % 2,
                     .swap_memory_bytes = round % 4 < 2 ? std::size_t{1} << 20 : 700,
                     .prefix_cache = round % 8 >= 4});
    std::vector<std::pair<RequestId, engine::GenerationRequest>> requests;
    for (int i = 0; i < 10; ++i) {
      auto request = random_request(random, 30, 60);
      request.ignore_eos = true;
      request.priority = static_cast<std::int32_t>(random() % 2);
      requests.emplace_back(harness.submit(request), request);
      harness.engine.step();
    }
    const RequestId doomed = requests[random() % requests.size()].first;
    for (int step = 0; step < 30; ++step) {
      harness.engine.step();
      harness.engine.check_integrity();
    }
    harness.engine.cancel(doomed);
    harness.run_to_the_end();
    num_restored += harness.engine.stats().swap.num_restored;
    num_computed_again += harness.engine.stats().num_preemptions - harness.engine.stats().swap.num_restored;
    for (const auto& [id, request] : requests) {
      if (id != doomed) {
        expect_same(harness.reply(id), alone(request));
      }
    }
  }
  EXPECT_GT(num_restored, 40);
  EXPECT_GT(num_computed_again, 10);
}

TEST(EngineLaw, RandomCancelsChangeNobodyElseAndReturnEverything) {
  std::mt19937_64 random = seeded(14);
  int num_cancelled = 0;
  for (int round = 0; round < 8; ++round) {
    Harness harness({.max_requests = 6, .max_batched_tokens = 16, .max_model_len = 100, .num_blocks = 30});
    std::vector<std::pair<RequestId, engine::GenerationRequest>> requests;
    while (requests.size() < 20 || harness.engine.has_work()) {
      if (requests.size() < 20) {
        const auto request = random_request(random, 40, 40);
        requests.emplace_back(harness.submit(request), request);
      }
      if (random() % 4 == 0) {
        harness.engine.cancel(requests[random() % requests.size()].first);
      }
      harness.engine.step();
    }
    EXPECT_EQ(harness.engine.stats().num_blocks_used, 0);
    EXPECT_EQ(harness.engine.stats().num_slots_used, 0);
    for (const auto& [id, request] : requests) {
      const Reply& reply = harness.reply(id);
      const Reply expected = alone(request);
      ASSERT_TRUE(reply.finish);
      if (reply.finish->reason == engine::FinishReason::cancelled) {
        ++num_cancelled;
        ASSERT_LE(reply.tokens.size(), expected.tokens.size());
        EXPECT_TRUE(std::equal(reply.tokens.begin(), reply.tokens.end(), expected.tokens.begin()));
      } else {
        expect_same(reply, expected);
      }
    }
  }
  EXPECT_GT(num_cancelled, 20);
}

TEST(EngineLaw, ABadRowEndsItsRequestAndChangesNobodyElse) {
  std::mt19937_64 random = seeded(15);
  Harness harness({.max_requests = 8, .max_batched_tokens = 16});
  harness.model.bad_token = {63};
  std::vector<std::pair<RequestId, engine::GenerationRequest>> requests;
  for (int i = 0; i < 8; ++i) {
    auto request = random_request(random, 30, 20);
    std::erase(request.prompt, TokenId{63});
    request.prompt.push_back({i % 3 == 0 ? 63 : 5});
    request.sampling.top_k = 1;
    requests.emplace_back(harness.submit(request), request);
  }
  harness.run_to_the_end();
  for (int i = 0; i < 8; ++i) {
    const auto& [id, request] = requests[static_cast<std::size_t>(i)];
    const Reply& reply = harness.reply(id);
    if (i % 3 == 0) {
      EXPECT_EQ(reply.finish->reason, engine::FinishReason::failed);
      EXPECT_EQ(reply.finish->message,
                "at position " + std::to_string(request.prompt.size()) + " the model's logits are not finite numbers");
      EXPECT_TRUE(reply.tokens.empty());
      continue;
    }
    const Reply expected = alone(request);
    if (std::ranges::find(expected.tokens, TokenId{63}) == expected.tokens.end()) {
      expect_same(reply, expected);
    }
  }
  EXPECT_EQ(harness.engine.stats().num_failed, 3);
}

}  // namespace
}  // namespace deepinfer::test
