// Ranks with clocks of their own, as threads: the same requests and outcomes everywhere, other times on each.
#include "engine/rank_agreement.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "engine/speculation.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kDrafts = 3;
constexpr int kSteps = 240;

using Agreement = std::function<engine::StepReport(comm::Collective&, const engine::StepReport&)>;

/// Rows of every step. Drafts come from a generator that all ranks share, times from one of the rank's own.
std::vector<std::int32_t> decide(comm::Collective& ranks, const Agreement& agreement) {
  std::mt19937_64 everywhere(7);
  std::mt19937_64 here(static_cast<std::uint64_t>(100 + ranks.rank()));
  std::lognormal_distribution<double> clock(0, 0.3);
  std::normal_distribution<float> logit(1, 1.5);
  std::uniform_real_distribution<float> uniform;
  engine::Speculation speculation({.max_drafts = kDrafts}, 64);
  std::vector<std::int32_t> out;
  bool drafts = false;
  for (int step = 0; step < kSteps; ++step) {
    const std::int32_t num_requests = std::array{1, 8, 3}[static_cast<std::size_t>(step / 20 % 3)];
    std::vector<std::array<float, kDrafts>> logits(static_cast<std::size_t>(num_requests));
    std::vector<std::array<float, kDrafts>> rates(logits.size());
    std::vector<scheduler::DraftRates> proposals(logits.size());
    for (std::size_t r = 0; r < logits.size() && drafts; ++r) {
      float rate = 1;
      for (std::size_t i = 0; i < kDrafts; ++i) {
        logits[r][i] = logit(everywhere);
        rates[r][i] = rate *= speculation.chance(static_cast<std::int32_t>(i), logits[r][i]);
      }
      proposals[r] = {rates[r]};
    }
    engine::StepReport report{.num_requests = num_requests, .num_rows = num_requests, .num_tokens = num_requests, .drafted = drafts};
    const std::span<const std::int32_t> num_drafts = speculation.plan(proposals, proposals, 64);
    for (std::size_t r = 0; r < logits.size(); ++r) {
      report.num_rows += num_drafts[r];
      bool accepted = true;
      for (std::int32_t i = 0; i < num_drafts[r] && accepted; ++i) {
        accepted = uniform(everywhere) < 0.6F;
        speculation.record_verdict(i, logits[r][static_cast<std::size_t>(i)], accepted);
        report.num_tokens += accepted ? 1 : 0;
      }
    }
    report.seconds = (1 + 0.2 * report.num_rows) * clock(here);
    report.draft_seconds = drafts ? 0.4 * clock(here) : 0;
    speculation.record_step(agreement(ranks, report));
    out.push_back(report.num_rows);
    drafts = speculation.wants_drafts(std::array{1, 8, 3}[static_cast<std::size_t>((step + 1) / 20 % 3)]);
    if (drafts) {
      speculation.record_draft_pass(report.draft_seconds);
    }
  }
  return out;
}

/// By rank. Each ends its run in its own time: without agreement nothing is exchanged.
std::vector<std::vector<std::int32_t>> decide_everywhere(std::int32_t num_ranks, const Agreement& agreement) {
  const auto world = comm::make_thread_world(num_ranks);
  std::vector<std::vector<std::int32_t>> out(world.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
      threads.emplace_back([&, rank] { out[rank] = decide(*world[rank], agreement); });
    }
  }
  return out;
}

TEST(RankAgreement, EveryRankVerifiesTheSameRowsAtEveryStep) {
  const auto rows = decide_everywhere(3, engine::agree);
  for (std::size_t rank = 1; rank < rows.size(); ++rank) {
    EXPECT_EQ(rows[rank], rows[0]) << rank;
  }
  EXPECT_EQ(decide_everywhere(1, engine::agree)[0], rows[0]) << "rank 0 alone";
}

TEST(RankAgreement, ClocksAloneWouldPartThem) {
  const auto rows = decide_everywhere(2, [](comm::Collective&, const engine::StepReport& mine) { return mine; });
  EXPECT_NE(rows[0], rows[1]);
}

}  // namespace
}  // namespace deepinfer::test
