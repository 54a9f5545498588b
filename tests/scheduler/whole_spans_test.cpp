// Spans that no chunk cuts: the arithmetic, and whole schedules with them.
#include "scheduler/whole_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "scheduler/scheduler.h"

namespace deepinfer::scheduler {
namespace {

const std::vector<WholeSpan> kSpans = {{.first_position = 3, .num_positions = 4}, {.first_position = 7, .num_positions = 2}};

TEST(WholeSpans, ACutInsideASpanMovesBeforeIt) {
  const std::vector<std::int32_t> want = {0, 1, 2, 3, 3, 3, 3, 7, 7, 9, 10};
  for (std::int32_t end = 0; end < static_cast<std::int32_t>(want.size()); ++end) {
    EXPECT_EQ(last_cut(kSpans, end), want[static_cast<std::size_t>(end)]) << end;
    EXPECT_EQ(last_cut({}, end), end);
  }
}

TEST(WholeSpans, AChunkAtASpanHasItsRows) {
  EXPECT_EQ(fewest_rows(kSpans, 0), 1);
  EXPECT_EQ(fewest_rows(kSpans, 3), 4);
  EXPECT_EQ(fewest_rows(kSpans, 7), 2);
  EXPECT_EQ(fewest_rows(kSpans, 9), 1);
}

TEST(WholeSpans, BoundedReplayStartsBeforeTheSpanAtAnEvenPosition) {
  const PrefixUse use{.num_shared_blocks = 2, .first_position = 8, .first_valid = 8, .stored_until = 16, .report = {.num_cached = 8}};
  const PrefixUse moved = without_cuts_inside(kSpans, use);  // 8 is in the second span, 7 is odd, 6 in the first span, 3 odd
  EXPECT_EQ(moved.first_position, 2);
  EXPECT_EQ(moved.first_valid, 2);
  EXPECT_EQ(moved.stored_until, 16);
  EXPECT_EQ(moved.report.num_cached, 2);
  const std::vector<WholeSpan> at_start = {{.first_position = 0, .num_positions = 12}};
  const PrefixUse none = without_cuts_inside(at_start, use);
  EXPECT_EQ(none.num_shared_blocks, 0);
  EXPECT_EQ(none.first_position, 0);
  EXPECT_EQ(none.report.miss, PrefixMiss::too_short);
}

TEST(WholeSpans, ACheckpointInsideASpanIsGivenUp) {
  EXPECT_EQ(without_cuts_inside(kSpans, {.checkpoint = 4, .report = {}}).checkpoint, 0);
  EXPECT_EQ(without_cuts_inside(kSpans, {.checkpoint = 7, .report = {}}).checkpoint, 7);
}

/// Runs everything that was submitted to its end; tokens cost nothing, every request gives `num_outputs` tokens.
class Runner {
 public:
  Runner(Limits limits, kvcache::CacheGeometry geometry) : scheduler_(limits, geometry) {}

  void submit(std::uint64_t id, std::int32_t num_tokens, std::vector<WholeSpan> spans, std::int32_t num_outputs = 1) {
    requests_[{id}] = {.spans = spans, .num_outputs = num_outputs};
    std::vector<kvcache::BlockHash> prefixes;
    for (std::int32_t end = 8; end <= num_tokens; end += 8) {
      prefixes.push_back({.words = {id % 2, static_cast<std::uint64_t>(end)}});  // two families of prompts
    }
    const Event event = Submitted{.request = {id},
                                  .num_tokens = num_tokens,
                                  .max_positions = num_tokens + num_outputs,
                                  .prefixes = std::move(prefixes),
                                  .whole_spans = std::move(spans)};
    scheduler_.apply(std::span(&event, 1));
  }

  void step() {
    const StepPlan& plan = scheduler_.plan();
    ASSERT_TRUE(!plan.chunks.empty() || !plan.needed_spans.empty() || requests_.empty()) << "something always goes on";
    std::vector<Event> events;
    for (const PlannedChunk& chunk : plan.chunks) {
      Known& request = requests_.at(chunk.request);
      for (const WholeSpan& span : request.spans) {
        ASSERT_TRUE(span.is_ready || span.first_position < chunk.first_position ||
                    span.first_position >= chunk.first_position + chunk.num_tokens)
            << "a span that is not ready is not computed";
        const std::int32_t end = span.first_position + span.num_positions;
        const auto is_inside = [&](std::int32_t cut) { return cut > span.first_position && cut < end; };
        ASSERT_FALSE(is_inside(chunk.first_position) || is_inside(chunk.first_position + chunk.num_tokens))
            << "request " << chunk.request.value << " rows from " << chunk.first_position << ", " << chunk.num_tokens << " of them";
      }
      events.push_back(
          Advanced{.request = chunk.request, .num_computed = chunk.num_tokens, .num_new_tokens = chunk.num_logit_rows});
    }
    scheduler_.apply(events);
    make_ready(plan.needed_spans);
    for (const PlannedChunk& chunk : std::vector<PlannedChunk>(plan.chunks)) {
      Known& request = requests_.at(chunk.request);
      request.num_outputs -= chunk.num_logit_rows;
      if (request.num_outputs == 0) {
        const Event event = Ended{.request = chunk.request};
        scheduler_.apply(std::span(&event, 1));
        requests_.erase(chunk.request);
      }
    }
    scheduler_.check_integrity();
  }

  [[nodiscard]] bool has(std::uint64_t id) const { return requests_.contains({id}); }
  [[nodiscard]] bool is_done() const { return requests_.empty(); }

 private:
  /// One span every other step, the oldest prompt's first.
  void make_ready(const std::vector<NeededSpan>& needed) {
    if (needed.empty() || ++num_steps_ % 2 == 0) {
      return;
    }
    const Event event = SpanReady{.request = needed[0].request, .first_position = needed[0].first_position};
    scheduler_.apply(std::span(&event, 1));
    std::ranges::find(requests_.at(needed[0].request).spans, needed[0].first_position, &WholeSpan::first_position)->is_ready = true;
  }

  struct Known {
    std::vector<WholeSpan> spans;
    std::int32_t num_outputs = 0;
  };
  Scheduler scheduler_;
  std::map<RequestId, Known> requests_;
  int num_steps_ = 0;
};

constexpr kvcache::CacheGeometry kGeometry = {.positions_per_block = 8, .num_blocks = 41, .num_slots = 9};

TEST(WholeSpans, ALongSpanIsNotStarvedByShortPrompts) {
  const Limits limits{.max_requests = 4, .max_batched_tokens = 40};
  Runner runner(limits, kGeometry);
  runner.submit(1, 60, {{.first_position = 10, .num_positions = max_whole_span(limits)}});
  std::uint64_t next = 2;
  int steps = 0;
  for (; steps < 12; ++steps) {
    for (int i = 0; i < 3; ++i) {
      runner.submit(next++, 12, {});
    }
    runner.step();
  }
  EXPECT_FALSE(runner.has(1)) << "alone it takes three steps; the others came all the time";
  for (; !runner.is_done() && steps < 200; ++steps) {
    runner.step();
  }
  EXPECT_TRUE(runner.is_done());
}

TEST(WholeSpans, AnImageThatWaitsComesBeforeDrafts) {
  const Limits limits{.max_requests = 4, .max_batched_tokens = 40};
  Scheduler scheduler(limits, kGeometry);
  const auto apply = [&](const Event& event) { scheduler.apply(std::span(&event, 1)); };
  const auto advance = [&](const StepPlan& plan) {
    std::vector<Event> events;
    for (const PlannedChunk& chunk : plan.chunks) {
      const bool verifies = chunk.num_logit_rows > 1;
      events.push_back(Advanced{.request = chunk.request,
                                .num_computed = verifies ? 1 : chunk.num_tokens,
                                .num_new_tokens = std::min(chunk.num_logit_rows, 1)});
    }
    scheduler.apply(events);
  };
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    apply(Submitted{.request = {id}, .num_tokens = 4, .max_positions = 40});
  }
  advance(scheduler.plan());
  const auto draft = [&] {
    for (const std::uint64_t id : {1U, 2U, 3U}) {
      apply(Drafted{.request = {id}, .num_drafts = 5});
    }
  };
  draft();
  EXPECT_EQ(scheduler.plan().num_tokens, 18) << "three rows and their drafts";
  advance(scheduler.plan());
  apply(Submitted{.request = {4},
                  .num_tokens = 60,
                  .max_positions = 61,
                  .whole_spans = {{.first_position = 0, .num_positions = max_whole_span(limits)}}});
  draft();
  const StepPlan& plan = scheduler.plan();
  ASSERT_EQ(plan.chunks.size(), 4U);
  EXPECT_EQ(plan.chunks.back().num_tokens, 37);
  EXPECT_EQ(plan.num_tokens, 40);
}

TEST(WholeSpans, APromptStopsBeforeASpanThatIsNotReady) {
  Scheduler scheduler({.max_requests = 4, .max_batched_tokens = 40}, kGeometry);
  const Event submitted = Submitted{.request = {1},
                                    .num_tokens = 30,
                                    .max_positions = 31,
                                    .prefixes = {},
                                    .whole_spans = {{.first_position = 6, .num_positions = 9, .is_ready = false}}};
  scheduler.apply(std::span(&submitted, 1));
  ASSERT_EQ(scheduler.plan().chunks.size(), 1U);
  EXPECT_EQ(scheduler.plan().chunks[0].num_tokens, 6);
  EXPECT_EQ(scheduler.plan().needed_spans[0].first_position, 6);
  const Event advanced = Advanced{.request = {1}, .num_computed = 6, .num_new_tokens = 0};
  scheduler.apply(std::span(&advanced, 1));
  EXPECT_TRUE(scheduler.plan().chunks.empty());
  const Event ready = SpanReady{.request = {1}, .first_position = 6};
  scheduler.apply(std::span(&ready, 1));
  EXPECT_EQ(scheduler.plan().chunks[0].num_tokens, 24);
  EXPECT_TRUE(scheduler.plan().needed_spans.empty());
}

TEST(WholeSpans, RandomPromptsWithSpansAreNeverCutAndAllEnd) {
  for (const Reuse reuse : {Reuse::none, Reuse::exact, Reuse::bounded}) {
    for (std::uint32_t seed = 1; seed <= 30; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " reuse " + std::to_string(static_cast<int>(reuse)));
      std::mt19937 random(seed);
      const Limits limits{.max_requests = 3,
                          .max_batched_tokens = 24,
                          .reuse = {.reuse = reuse, .bounded_replay = reuse == Reuse::bounded, .window = 6, .keep = 9}};
      Runner runner(limits, kGeometry);
      // Equal spans in both families, so that prefixes meet where spans lie.
      std::vector<WholeSpan> spans;
      for (std::int32_t at = static_cast<std::int32_t>(random() % 9); at < 70;) {
        const auto length = static_cast<std::int32_t>(1 + random() % static_cast<std::uint32_t>(max_whole_span(limits)));
        spans.push_back({.first_position = at, .num_positions = length, .is_ready = random() % 2 == 0});
        at += length + static_cast<std::int32_t>(random() % 12);
      }
      for (std::uint64_t id = 1; id <= 20; ++id) {
        auto num_tokens = static_cast<std::int32_t>(1 + random() % 100);
        num_tokens = std::max(1, last_cut(spans, num_tokens));
        std::vector<WholeSpan> own;
        for (const WholeSpan& span : spans) {
          if (span.first_position + span.num_positions <= num_tokens) {
            own.push_back(span);
          }
        }
        runner.submit(id, num_tokens, std::move(own), static_cast<std::int32_t>(1 + random() % 20));
        if (random() % 3 == 0) {
          runner.step();
        }
      }
      for (int steps = 0; !runner.is_done() && steps < 2000 && !HasFatalFailure(); ++steps) {
        runner.step();
      }
      ASSERT_TRUE(runner.is_done());
    }
  }
}

}  // namespace
}  // namespace deepinfer::scheduler
