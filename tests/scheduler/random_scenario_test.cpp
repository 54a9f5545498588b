// Thousands of random steps against a naive model that knows only the promises: contiguous chunks, budgets, disjoint blocks,
// a row for every decoding request, preemption only for a real need and never of the oldest, and that everybody finishes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "scheduler/scheduler.h"

namespace deepinfer::scheduler {
namespace {

struct Scenario {
  Limits limits;
  kvcache::CacheGeometry geometry;
  std::int32_t max_prompt = 0;
  std::int32_t max_outputs = 0;
  int end_chance = 0;  // one step in so many ends a random request early; 0: never
  std::int32_t max_drafts = 0;
};

enum class Phase { queued, prefilling, decoding };

struct NaiveRequest {
  Phase phase = Phase::queued;
  std::int32_t num_tokens = 0;
  std::int32_t max_positions = 0;
  std::int32_t num_computed = 0;
  std::int32_t num_drafts = 0;
  std::int32_t num_saved = 0;  ///< positions that were kept elsewhere when it was preempted
  SlotId slot{};
  std::vector<BlockId> blocks{};
};

class NaiveModel {
 public:
  explicit NaiveModel(const Scenario& scenario) : scenario_(scenario) {}

  std::map<std::uint64_t, NaiveRequest> requests;  // by id, which is the order of arrival

  void observe(const StepPlan& plan) {
    const std::int32_t num_free = scenario_.geometry.num_blocks - 1 - num_held_blocks();
    observe_preemption(plan, num_free);
    observe_saving(plan);
    std::int32_t num_rows = 0;
    std::set<RequestId> planned;
    for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
      const PlannedChunk& chunk = plan.chunks[i];
      ASSERT_TRUE(planned.insert(chunk.request).second) << "one chunk per request and step";
      num_rows += chunk.num_tokens;
      observe_chunk(chunk, static_cast<std::int32_t>(i) < plan.num_decode_chunks);
    }
    ASSERT_EQ(num_rows, plan.num_tokens);
    ASSERT_LE(num_rows, scenario_.limits.max_batched_tokens);
    ASSERT_LE(static_cast<std::int32_t>(planned.size()), scenario_.limits.max_requests);
    observe_service(plan, planned);
    observe_ownership();
  }

  void advance(const PlannedChunk& chunk) {
    NaiveRequest& request = requests.at(chunk.request.value);
    request.num_computed += chunk.num_tokens;
    request.num_tokens += chunk.num_logit_rows;
    request.phase = chunk.num_logit_rows >= 1 ? Phase::decoding : Phase::prefilling;
  }

 private:
  std::int32_t blocks_for(std::int32_t num_positions) const {
    return (num_positions + scenario_.geometry.positions_per_block - 1) / scenario_.geometry.positions_per_block;
  }

  std::int32_t num_held_blocks() const {
    std::int32_t num = 0;
    for (const auto& [id, request] : requests) {
      num += static_cast<std::int32_t>(request.blocks.size());
    }
    return num;
  }

  void observe_preemption(const StepPlan& plan, std::int32_t num_free) {
    std::int32_t num_needed = 0;
    std::optional<std::uint64_t> oldest;
    for (const auto& [id, request] : requests) {
      if (request.phase == Phase::decoding) {
        num_needed += blocks_for(request.num_tokens) - static_cast<std::int32_t>(request.blocks.size());
      }
      if (request.phase != Phase::queued && !oldest) {
        oldest = id;
      }
    }
    if (num_needed <= num_free) {
      ASSERT_TRUE(plan.preempted.empty()) << "no request is preempted without need";
    }
    for (const FreedCache& freed : plan.freed) {
      const NaiveRequest& request = requests.at(freed.request.value);
      ASSERT_EQ(freed.num_computed, request.num_computed);
      ASSERT_EQ(freed.slot, request.slot.value == 0 ? freed.slot : request.slot);
      const auto num_blocks = static_cast<std::size_t>(blocks_for(freed.num_computed));
      ASSERT_TRUE(std::ranges::equal(freed.blocks, std::span(request.blocks).first(num_blocks)));
    }
    for (const RequestId id : plan.preempted) {
      NaiveRequest& request = requests.at(id.value);
      ASSERT_NE(request.phase, Phase::queued);
      ASSERT_NE(id.value, *oldest) << "the oldest running request is never preempted";
      request.phase = Phase::queued;
      request.num_saved = 0;
      request.num_computed = 0;
      request.blocks.clear();
      request.slot = {};
    }
  }

  /// What a preempted request had is told, and one that was saved goes on from there.
  void observe_saving(const StepPlan& plan) {
    ASSERT_EQ(plan.freed.size(), scenario_.limits.notes_preempted_caches ? plan.preempted.size() : 0U);
    for (const Admission& admission : plan.admitted) {
      NaiveRequest& request = requests.at(admission.request.value);
      const bool is_worth_it = request.num_saved > scenario_.geometry.positions_per_block;
      ASSERT_EQ(admission.is_resumed, is_worth_it);
      request.num_computed = admission.is_resumed ? request.num_saved : 0;
      request.num_saved = 0;
    }
  }

  void observe_chunk(const PlannedChunk& chunk, bool decodes) {
    NaiveRequest& request = requests.at(chunk.request.value);
    ASSERT_EQ(decodes, request.phase == Phase::decoding) << "decode rows come first";
    ASSERT_EQ(chunk.first_position, request.num_computed) << "chunks are contiguous";
    ASSERT_GE(chunk.num_tokens, 1);
    const std::int32_t end = chunk.first_position + chunk.num_tokens;
    const std::int32_t num_drafts = decodes ? chunk.num_tokens - 1 : 0;
    ASSERT_LE(num_drafts, request.num_drafts) << "only proposed drafts are verified";
    ASSERT_LE(end, request.num_tokens + num_drafts);
    ASSERT_LE(end, request.max_positions);
    ASSERT_LE(request.num_tokens, request.max_positions);
    ASSERT_EQ(chunk.num_logit_rows, end >= request.num_tokens ? 1 + num_drafts : 0);
    request.num_drafts = 0;
    ASSERT_GE(static_cast<std::int32_t>(chunk.blocks.size()), blocks_for(end));
    ASSERT_GE(chunk.blocks.size(), request.blocks.size());
    ASSERT_TRUE(std::ranges::equal(request.blocks, chunk.blocks.first(request.blocks.size()))) << "a block table only grows";
    if (request.phase == Phase::queued) {
      request.phase = Phase::prefilling;
      request.slot = chunk.slot;
    }
    ASSERT_EQ(request.slot, chunk.slot) << "the slot stays";
    request.blocks.assign(chunk.blocks.begin(), chunk.blocks.end());
  }

  void observe_service(const StepPlan& plan, const std::set<RequestId>& planned) const {
    bool all_prompts_complete = true;
    for (const auto& [id, request] : requests) {
      if (request.phase == Phase::decoding) {
        ASSERT_TRUE(planned.contains(RequestId{id})) << "every decoding request has its row";
      }
      if (request.phase == Phase::prefilling) {
        const auto chunk = std::ranges::find(plan.chunks, RequestId{id}, &PlannedChunk::request);
        all_prompts_complete = all_prompts_complete && chunk != plan.chunks.end() && chunk->num_logit_rows >= 1;
      }
    }
    if (!all_prompts_complete) {
      ASSERT_EQ(plan.num_tokens, scenario_.limits.max_batched_tokens) << "no row of the budget is left while a prompt waits for it";
    }
    ASSERT_EQ(plan.chunks.empty(), requests.empty()) << "somebody always runs";
  }

  void observe_ownership() const {
    std::set<BlockId> blocks;
    std::set<SlotId> slots;
    for (const auto& [id, request] : requests) {
      if (request.phase == Phase::queued) {
        continue;
      }
      ASSERT_TRUE(slots.insert(request.slot).second && request.slot.value > 0) << "slots are not shared";
      for (const BlockId block : request.blocks) {
        ASSERT_TRUE(blocks.insert(block).second && block.value > 0) << "blocks are not shared";
      }
    }
  }

  Scenario scenario_;
};

class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, std::uint64_t seed)
      : scenario_(scenario), random_(seed), scheduler_(scenario.limits, scenario.geometry), model_(scenario) {}

  void steps(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      while (random_() % 3 == 0 && model_.requests.size() < 40) {
        submit();
      }
      one_step();
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }

  void to_the_end() {
    int num_steps = 0;
    while (!model_.requests.empty()) {
      ASSERT_LT(++num_steps, 20'000) << "every request finishes";
      one_step();
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
    EXPECT_EQ(scheduler_.pool().blocks().num_used(), 0);
    EXPECT_EQ(scheduler_.pool().slots().num_used(), 0);
  }

  int num_preempted() const { return num_preempted_; }
  int num_drafts() const { return num_drafts_; }
  int num_ended_early(Phase phase) const { return num_ended_early_.at(static_cast<std::size_t>(phase)); }

 private:
  void submit() {
    const std::uint64_t id = ++last_id_;
    const auto num_tokens = 1 + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(scenario_.max_prompt));
    const auto num_outputs = 1 + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(scenario_.max_outputs));
    const std::int32_t max_positions = num_tokens + num_outputs - 1;
    model_.requests[id] = {.num_tokens = num_tokens, .max_positions = max_positions};
    apply({Submitted{.request = {id}, .num_tokens = num_tokens, .max_positions = max_positions}});
  }

  void apply(std::vector<Event> events) {
    scheduler_.apply(events);
    scheduler_.check_integrity();
  }

  void maybe_draft() {
    for (auto& [id, request] : model_.requests) {
      if (request.phase == Phase::decoding && scenario_.max_drafts > 0 && random_() % 3 != 0) {
        request.num_drafts = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(scenario_.max_drafts + 1));
        apply({Drafted{.request = {id}, .num_drafts = request.num_drafts}});
      }
    }
  }

  /// Some of the drafts are accepted, one row after the other.
  void advance_drafts(const PlannedChunk& chunk, std::vector<Event>& events) {
    NaiveRequest& request = model_.requests.at(chunk.request.value);
    const auto num_rows = 1 + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(chunk.num_tokens));
    for (std::int32_t row = 0; row < num_rows; ++row) {
      ++request.num_computed;
      if (request.num_tokens++ == request.max_positions) {
        events.push_back(Ended{.request = chunk.request});
        model_.requests.erase(chunk.request.value);
        return;
      }
      events.push_back(Advanced{.request = chunk.request, .num_computed = 1, .num_new_tokens = 1});
    }
    num_drafts_ += chunk.num_tokens - 1;
  }

  void one_step() {
    maybe_end_early();
    maybe_draft();
    const StepPlan& plan = scheduler_.plan();
    scheduler_.check_integrity();
    model_.observe(plan);
    num_preempted_ += static_cast<int>(plan.preempted.size());
    std::vector<Event> events;
    for (const FreedCache& freed : plan.freed) {
      NaiveRequest& request = model_.requests.at(freed.request.value);
      if (request.phase == Phase::queued && random_() % 3 != 0) {
        request.num_saved = freed.num_computed;
        events.push_back(Saved{.request = freed.request});
      }
    }
    for (const PlannedChunk& chunk : plan.chunks) {
      const NaiveRequest& request = model_.requests.at(chunk.request.value);
      if (chunk.num_logit_rows > 1) {
        advance_drafts(chunk, events);
        continue;
      }
      const bool full = chunk.num_logit_rows == 1 && request.num_tokens == request.max_positions;
      const bool stops = full || (chunk.num_logit_rows == 1 && random_() % 40 == 0) || (scenario_.end_chance > 0 && random_() % 200 == 0);
      if (stops) {
        events.push_back(Ended{.request = chunk.request});
        model_.requests.erase(chunk.request.value);
      } else {
        events.push_back(Advanced{.request = chunk.request, .num_computed = chunk.num_tokens, .num_new_tokens = chunk.num_logit_rows});
        model_.advance(chunk);
      }
    }
    apply(std::move(events));
  }

  void maybe_end_early() {
    if (scenario_.end_chance == 0 || model_.requests.empty() || random_() % static_cast<std::uint64_t>(scenario_.end_chance) != 0) {
      return;
    }
    const auto chosen = std::next(model_.requests.begin(), static_cast<std::ptrdiff_t>(random_() % model_.requests.size()));
    ++num_ended_early_.at(static_cast<std::size_t>(chosen->second.phase));
    apply({Ended{.request = {chosen->first}}});
    model_.requests.erase(chosen);
  }

  Scenario scenario_;
  std::mt19937_64 random_;
  Scheduler scheduler_;
  NaiveModel model_;
  std::uint64_t last_id_ = 0;
  int num_preempted_ = 0;
  int num_drafts_ = 0;
  std::array<int, 3> num_ended_early_{};
};

ScenarioRun run(const Scenario& scenario, std::uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  ScenarioRun scenario_run(scenario, seed);
  scenario_run.steps(4'000);
  if (!testing::Test::HasFatalFailure()) {
    scenario_run.to_the_end();
  }
  return scenario_run;
}

TEST(RandomScenario, KeepsItsPromisesWithRoomForEverybody) {
  run({.limits = {.max_requests = 8, .max_batched_tokens = 32},
       .geometry = {.positions_per_block = 4, .num_blocks = 400, .num_slots = 9},
       .max_prompt = 60,
       .max_outputs = 40},
      1);
}

TEST(RandomScenario, KeepsItsPromisesWhenBlocksAreShort) {
  for (const std::uint64_t seed : {2U, 3U, 4U}) {
    const ScenarioRun tight = run({.limits = {.max_requests = 8, .max_batched_tokens = 24},
                                   .geometry = {.positions_per_block = 4, .num_blocks = 30, .num_slots = 9},
                                   .max_prompt = 60,
                                   .max_outputs = 50},
                                  seed);
    EXPECT_GT(tight.num_preempted(), 100);
  }
}

TEST(RandomScenario, KeepsItsPromisesWithDrafts) {
  for (const std::int32_t num_blocks : {40, 400}) {
    const ScenarioRun drafted = run({.limits = {.max_requests = 8, .max_batched_tokens = 28},
                                     .geometry = {.positions_per_block = 4, .num_blocks = num_blocks, .num_slots = 9},
                                     .max_prompt = 60,
                                     .max_outputs = 60,
                                     .end_chance = 30,
                                     .max_drafts = 5},
                                    8);
    EXPECT_GT(drafted.num_drafts(), 3000);
  }
}

TEST(RandomScenario, KeepsItsPromisesWhenPreemptedRequestsAreSaved) {
  for (const std::uint64_t seed : {8U, 9U}) {
    const ScenarioRun saved = run({.limits = {.max_requests = 8, .max_batched_tokens = 24, .notes_preempted_caches = true},
                                   .geometry = {.positions_per_block = 4, .num_blocks = 30, .num_slots = 9},
                                   .max_prompt = 60,
                                   .max_outputs = 50,
                                   .end_chance = 20},
                                  seed);
    EXPECT_GT(saved.num_preempted(), 100);
  }
}

TEST(RandomScenario, KeepsItsPromisesWhenSlotsAreShort) {
  run({.limits = {.max_requests = 8, .max_batched_tokens = 8},
       .geometry = {.positions_per_block = 2, .num_blocks = 200, .num_slots = 4},
       .max_prompt = 30,
       .max_outputs = 20},
      5);
}

TEST(RandomScenario, EveryBlockReturnsWhateverIsEndedWhenever) {
  for (const std::uint64_t seed : {6U, 7U}) {
    const ScenarioRun ended = run({.limits = {.max_requests = 6, .max_batched_tokens = 16},
                                   .geometry = {.positions_per_block = 4, .num_blocks = 40, .num_slots = 7},
                                   .max_prompt = 80,
                                   .max_outputs = 40,
                                   .end_chance = 3},
                                  seed);
    EXPECT_GT(ended.num_ended_early(Phase::queued), 50);
    EXPECT_GT(ended.num_ended_early(Phase::prefilling), 50);
    EXPECT_GT(ended.num_ended_early(Phase::decoding), 50);
  }
}

}  // namespace
}  // namespace deepinfer::scheduler
