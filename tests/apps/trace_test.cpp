// Traces: the two formats, prompts made for them, the ideal cache, and a replay against an engine whose model computes nothing.
#include <gtest/gtest.h>

#include <random>

#include "apps/ideal_cache.h"
#include "apps/trace.h"
#include "apps/trace_prompts.h"
#include "apps/trace_replay.h"
#include "base/check.h"

namespace deepinfer::apps {
namespace {

TEST(Trace, MooncakeRowsHavePrefixes) {
  const auto trace = parse_trace(
      "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 20, \"hash_ids\": [3, 4]}\n"
      "{\"timestamp\": 2500, \"input_length\": 10, \"output_length\": 0, \"hash_ids\": [5]}\n");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->format, TraceFormat::mooncake);
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[0].arrival_seconds, 0.0);
  EXPECT_EQ(trace->requests[1].arrival_seconds, 1.5);
  EXPECT_EQ(trace->requests[0].num_prompt, 600);
  EXPECT_EQ(trace->requests[1].num_output, 1) << "an empty output counts as one token";
  EXPECT_EQ(trace->requests[0].hash_ids, (std::vector<std::int64_t>{3, 4}));
}

TEST(Trace, AzureRowsHaveTimesOfTheDay) {
  const auto trace = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.7500000,374,44\r\n2023-11-17 00:00:01.0000000,396,109\r\n", 5);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->format, TraceFormat::azure);
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[1].arrival_seconds, 1.25);
  EXPECT_EQ(trace->requests[1].num_prompt, 396);
  EXPECT_EQ(trace->requests[1].num_output, 109);
}

TEST(Trace, AWrongRowIsNamedByItsLine) {
  const auto of = [](std::string_view text) {
    const auto trace = parse_trace(text);
    return trace ? std::string("accepted") : trace.error().message;
  };
  EXPECT_EQ(of(""), "the trace has no request");
  EXPECT_NE(of("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}\n[]\n").find("line 2 of the trace"),
            std::string::npos);
  EXPECT_NE(of("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}").find("hash_ids"), std::string::npos);
  EXPECT_NE(of("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46,1,1\n").find("line 2"), std::string::npos);
  EXPECT_NE(of("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1\n").find("line 2"), std::string::npos);
}

TEST(Trace, EqualHashesGiveEqualPrefixesAndNothingMore) {
  const TraceScale scale{.divisor = 16, .vocab_size = 1000, .max_total = 500};
  const TraceRequest one{.num_prompt = 1600, .num_output = 160, .hash_ids = {7, 8, 9, 10}};
  const TraceRequest two{.num_prompt = 2048, .num_output = 160, .hash_ids = {7, 8, 11, 12}};
  const ScaledRequest a = scaled_request(one, 0, scale);
  const ScaledRequest b = scaled_request(two, 1, scale);
  ASSERT_EQ(a.prompt.size(), 100U);
  ASSERT_EQ(b.prompt.size(), 128U);
  EXPECT_EQ(a.num_output, 10);
  const auto differ = std::ranges::mismatch(a.prompt, b.prompt);
  EXPECT_EQ(differ.in1 - a.prompt.begin(), 64) << "two hashes of 512 tokens, divided by 16";
  const ScaledRequest c = scaled_request({.num_prompt = 160, .num_output = 1}, 2, scale);
  const ScaledRequest d = scaled_request({.num_prompt = 160, .num_output = 1}, 3, scale);
  EXPECT_NE(c.prompt, d.prompt) << "without hashes nobody is like another";
  const ScaledRequest cut = scaled_request({.num_prompt = 16000, .num_output = 160}, 4, scale);
  EXPECT_TRUE(cut.was_cut);
  EXPECT_EQ(cut.prompt.size() + static_cast<std::size_t>(cut.num_output), 500U);
}

TEST(IdealCache, TheLongestUnusedGoesFirstAndAPrefixOutlivesWhatFollows) {
  const auto name = [](std::uint64_t number) { return kvcache::BlockHash{.words = {number, 0}}; };
  IdealCache cache(4, std::nullopt);
  const std::vector a = {name(1), name(2), name(3)};
  const std::vector b = {name(10), name(11)};
  EXPECT_EQ(cache.run(a, 3, 3), 0);
  EXPECT_EQ(cache.run(a, 2, 3), 2) << "only what may be used counts";
  EXPECT_EQ(cache.run(b, 2, 2), 0);
  EXPECT_EQ(cache.run(a, 3, 3), 2) << "the last block made room for b";
  EXPECT_EQ(cache.run(b, 2, 2), 1);
}

TEST(IdealCache, WithStatesAHitEndsWhereOneWasKept) {
  const auto name = [](std::uint64_t number) { return kvcache::BlockHash{.words = {number, 0}}; };
  const std::vector a = {name(1), name(2), name(3)};
  const std::vector b = {name(1), name(2), name(10)};
  const std::vector c = {name(1), name(2), name(11)};
  IdealCache cache(10, 5);
  EXPECT_EQ(cache.run(a, 3, 3), 0);
  EXPECT_EQ(cache.run(a, 3, 3), 3);
  EXPECT_EQ(cache.run(b, 3, 3), 0) << "it leaves a where no state was kept";
  EXPECT_EQ(cache.run(c, 3, 3), 2) << "now there is one";
  IdealCache poor(10, 1);
  poor.run(a, 3, 3);
  poor.run({{name(20)}}, 1, 1);
  EXPECT_EQ(poor.run(a, 3, 3), 0) << "its state made room";
}

TEST(Percentile, IsAValueThatWasMeasured) {
  EXPECT_EQ(percentile({}, 50), 0.0);
  EXPECT_EQ(percentile({1}, 99), 1.0);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 50), 2.0);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 99), 4.0);
}

constexpr std::int32_t kVocab = 64;
constexpr std::int32_t kBlock = 16;
constexpr std::int32_t kBlocks = 240;
constexpr std::int32_t kSlots = 128;
constexpr std::int32_t kContext = 512;

/// Sessions whose every turn repeats the turns before it, behind one of a few system prompts, as a trace has them.
Trace sessions(std::uint64_t seed, std::size_t num_requests) {
  struct Session {
    std::vector<std::int64_t> ids;
    std::size_t last_turn = 0;
  };
  std::mt19937_64 random(seed);
  std::int64_t next_id = 100;
  std::vector<Session> open;
  Trace out;
  while (out.requests.size() < num_requests) {
    if (open.size() < 12 || random() % 4 == 0) {
      const auto system = static_cast<std::int64_t>(random() % 5);
      open.push_back({.ids = {10 * system, 10 * system + 1}});
    }
    if (open.size() > 24) {
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(random() % open.size()));
    }
    Session& session = open[random() % open.size()];
    const std::size_t turn = out.requests.size();
    if (session.last_turn != 0 && turn - session.last_turn < 8) {
      continue;  // nobody goes on before the reply is there
    }
    session.last_turn = turn;
    const auto num_new = 1 + static_cast<std::int32_t>(random() % 4);
    for (std::int32_t i = 0; i < num_new; ++i) {
      session.ids.push_back(next_id++);
    }
    const auto num_tokens = static_cast<std::int32_t>(session.ids.size()) * kTokensPerHash;
    out.requests.push_back({.arrival_seconds = 0.01 * static_cast<double>(turn),
                            .num_prompt = num_tokens - static_cast<std::int32_t>(random() % kTokensPerHash),
                            .num_output = 1 + static_cast<std::int32_t>(random() % 600),
                            .hash_ids = session.ids});
    if (session.ids.size() > 24) {
      session.ids = {next_id++};
    }
  }
  return out;
}

/// An engine with a model that computes nothing.
std::unique_ptr<engine::Engine> null_engine(engine::Replay replay) {
  auto logits = std::make_shared<std::vector<float>>(static_cast<std::size_t>(kVocab) * 16);
  engine::EngineParts parts{.model = engine::synchronous([logits](std::span<const model::Chunk> chunks) {
                              std::size_t num_rows = 0;
                              for (const model::Chunk& chunk : chunks) {
                                num_rows += static_cast<std::size_t>(chunk.num_logit_rows);
                              }
                              return std::span<const float>(*logits).first(num_rows * kVocab);
                            }),
                            .token_bytes = [](TokenId) { return std::string_view("x"); },
                            .vocab_size = kVocab,
                            .eos = {0},
                            .num_previous_tokens = 3,
                            .geometry = {.positions_per_block = kBlock, .num_blocks = 1 + kBlocks, .num_slots = 1 + kSlots},
                            .window = 4};
  parts.model.copy_state = [](SlotId, SlotId) {};
  return std::make_unique<engine::Engine>(
      std::move(parts),
      engine::EngineOptions{
          .max_requests = 4, .max_batched_tokens = 256, .max_model_len = kContext, .replay = replay, .replay_keep = 6, .overlap_depth = 1});
}

ReplayReport replayed(engine::Replay mode, double speed, std::size_t num_requests) {
  const auto engine = null_engine(mode);
  const Trace trace = sessions(5, num_requests);
  const auto report = replay(*engine, trace,
                             {.divisor = 32,
                              .speed = speed,
                              .max_unfinished = 4,
                              .max_model_len = kContext,
                              .num_blocks = kBlocks,
                              .num_states = mode == engine::Replay::exact ? std::optional(kSlots - 4) : std::nullopt,
                              .positions_per_block = kBlock});
  check(report.has_value(), "the engine takes every request");
  EXPECT_EQ(report->num_requests, num_requests);
  EXPECT_EQ(report->num_failed, 0U);
  EXPECT_EQ(report->num_refused, 0U);
  EXPECT_EQ(report->ttft_seconds.size(), num_requests);
  EXPECT_FALSE(engine->has_work());
  EXPECT_EQ(engine->stats().num_blocks_used, 0);
  return *report;
}

TEST(TraceReplay, HitsAreWithinOnePercentOfTheIdealAndMemoryStaysFlat) {
  const ReplayReport report = replayed(engine::Replay::exact, 0, 6000);
  EXPECT_GT(report.ideal_hit_rate(), 0.3);
  EXPECT_GE(report.hit_rate(), report.ideal_hit_rate() - 0.01);
  EXPECT_GT(report.misses[static_cast<std::size_t>(scheduler::PrefixMiss::evicted)], 100) << "the cache is too small for the trace";
  constexpr std::size_t kSlack = 1 << 20;
  EXPECT_LE(report.resident_bytes_end, report.resident_bytes_half + kSlack);
}

TEST(TraceReplay, BoundedReplayLosesItsRunUpOnly) {
  const ReplayReport report = replayed(engine::Replay::bounded, 0, 2000);
  constexpr double kRunUp = 6;  // of a request: the window, made even, and what is computed anyway
  EXPECT_GE(report.hit_rate(), report.ideal_hit_rate() - 0.01 - kRunUp * 2000 / static_cast<double>(report.num_prompt_tokens));
}

TEST(TraceReplay, RequestsComeAtThePaceOfTheTrace) {
  const ReplayReport report = replayed(engine::Replay::exact, 10, 200);
  EXPECT_GE(report.seconds, 199 * 0.001) << "a hundredth of a second apart, ten times as fast";
}

}  // namespace
}  // namespace deepinfer::apps
