// The choice between plain steps, all drafts and some of them, on simulated machines: over every curve of step times, drafter and load it must
// not be slower than the better of plain and full, though it only sees noisy times and single outcomes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/speculation.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kDrafts = 5;
constexpr std::int32_t kMaxRows = 512;
/// From here on the policy must have found its way; steps of the whole run.
constexpr int kLearned = 100;
constexpr int kSteps = 400;

using Curve = std::function<double(double size)>;

struct Machine {
  std::string name;
  Curve forward;  // seconds by rows
};

struct DrafterCase {
  std::string name;
  double pass;         // seconds of a draft pass of one request, in forwards of one row
  double pass_slope;   // of each further request
  double mean_logit;   // of the chance that a draft is accepted
  double spread;       // of that logit from text to text
  double report_bias;  // confidences are reported with this much added to the logit
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Drafts of one request: chances slowly change with its text.
struct Text {
  double mood = 0;
  std::vector<float> chances;  // each draft's, if those before it are accepted
  std::vector<float> logits;   // as the drafter reports them
  std::vector<float> rates;    // as reported, with their predecessors
  std::vector<float> older_rates;

  void propose(const DrafterCase& drafter, const engine::Speculation& speculation, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    mood = 0.8 * mood + 0.6 * normal(random);
    std::swap(older_rates, rates);
    chances.clear();
    logits.clear();
    rates.clear();
    float rate = 1;
    for (int i = 0; i < kDrafts; ++i) {
      const double logit = drafter.mean_logit + drafter.spread * (0.7 * mood + 0.7 * normal(random));
      chances.push_back(static_cast<float>(sigmoid(logit)));
      logits.push_back(static_cast<float>(logit + drafter.report_bias));
      rate *= speculation.chance(i, logits.back());
      rates.push_back(rate);
    }
    while (older_rates.size() < rates.size()) {
      older_rates.push_back(speculation.usual_rate(static_cast<std::int32_t>(older_rates.size())));
    }
  }

  [[nodiscard]] double mean_accepted(int num_verified) const {
    double sum = 0;
    double all_so_far = 1;
    for (int i = 0; i < num_verified; ++i) {
      all_so_far *= static_cast<double>(chances[static_cast<std::size_t>(i)]);
      sum += all_so_far;
    }
    return sum;
  }

  [[nodiscard]] int verify(int num_verified, engine::Speculation& speculation, std::mt19937_64& random) const {
    std::uniform_real_distribution<float> uniform;
    for (int i = 0; i < num_verified; ++i) {
      const auto place = static_cast<std::size_t>(i);
      const bool accepted = uniform(random) < chances[place];
      speculation.record_verdict(i, logits[place], accepted);
      if (!accepted) {
        return i;
      }
    }
    return num_verified;
  }
};

/// Measured times scatter by a tenth, and one of fifty is disturbed.
double noisy(double seconds, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  return seconds * std::exp(0.1 * normal(random)) * (random() % 50 == 0 ? 3.0 : 1.0);
}

/// Tokens and seconds by number of requests.
struct Work {
  std::array<double, 65> tokens{};
  std::array<double, 65> seconds{};

  /// Tokens per second when every number of requests brings as many steps' worth of tokens.
  [[nodiscard]] double speed() const {
    double sum_tokens = 0;
    double sum_seconds = 0;
    for (std::size_t n = 1; n < tokens.size(); ++n) {
      sum_tokens += tokens[n] > 0 ? static_cast<double>(n) : 0;
      sum_seconds += tokens[n] > 0 ? static_cast<double>(n) * seconds[n] / tokens[n] : 0;
    }
    return sum_tokens / sum_seconds;
  }
};

struct Phases {
  Work learning;  // the steps before kLearned
  Work learned;
};

struct Simulation {
  const Machine& machine;
  const DrafterCase& drafter;
  std::function<int(int step)> load;
  std::mt19937_64 random;

  [[nodiscard]] double pass_seconds(int num_requests) const {
    return machine.forward(1) * (drafter.pass + drafter.pass_slope * (num_requests - 1));
  }

  void run(engine::SpeculationMode mode, Phases& phases) {
    const bool is_off = mode == engine::SpeculationMode::off;
    engine::Speculation speculation({.speculation = mode, .max_drafts = kDrafts}, kMaxRows);
    std::vector<Text> texts(64);
    bool drafts = false;
    for (int step = 0; step < kSteps; ++step) {
      const int num_requests = load(step);
      double expected_tokens = num_requests;
      engine::StepReport report{.num_requests = num_requests, .num_rows = num_requests, .num_tokens = num_requests};
      if (drafts) {
        expected_tokens += take_drafts(speculation, texts, report);
      }
      report.seconds = noisy(machine.forward(report.num_rows), random);
      Work& work = step < kLearned ? phases.learning : phases.learned;
      work.tokens[static_cast<std::size_t>(num_requests)] += expected_tokens;
      work.seconds[static_cast<std::size_t>(num_requests)] += report.seconds + report.draft_seconds;
      speculation.record_step(report);
      const int next_requests = load(step + 1);
      drafts = !is_off && speculation.wants_drafts(next_requests);
      for (int r = 0; r < next_requests; ++r) {
        if (drafts) {
          texts[static_cast<std::size_t>(r)].propose(drafter, speculation, random);
        } else {
          texts[static_cast<std::size_t>(r)].rates.clear();
          texts[static_cast<std::size_t>(r)].older_rates.clear();
        }
      }
    }
  }

  /// Returns how many drafts are accepted on average.
  double take_drafts(engine::Speculation& speculation, std::vector<Text>& texts, engine::StepReport& report) {
    std::vector<scheduler::DraftRates> older;
    std::vector<scheduler::DraftRates> newer;
    for (int r = 0; r < report.num_requests; ++r) {
      Text& text = texts[static_cast<std::size_t>(r)];
      older.push_back({text.older_rates});
      newer.push_back({text.rates});
    }
    const auto num_drafts = speculation.plan(older, newer, kMaxRows);
    double mean_accepted = 0;
    for (int r = 0; r < report.num_requests; ++r) {
      const Text& text = texts[static_cast<std::size_t>(r)];
      const auto count = num_drafts[static_cast<std::size_t>(r)];
      report.num_rows += count;
      report.num_tokens += text.verify(count, speculation, random);
      mean_accepted += text.mean_accepted(count);
    }
    report.drafted = true;
    report.draft_seconds = noisy(pass_seconds(report.num_requests), random);
    return mean_accepted;
  }
};

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
      {"flat", [](double n) { return 1 + 0.002 * n; }},
      {"half linear", [](double n) { return 1 + 0.05 * n; }},
      {"linear", [](double n) { return 0.3 + 0.2 * n; }},
      {"proportional", [](double n) { return n; }},
      {"staircase", [](double n) { return 1 + 0.5 * std::floor((n - 1) / 8); }},
      {"one step", [](double n) { return n <= 8 ? 1 : 2 + 0.01 * n; }},
      {"root", [](double n) { return std::sqrt(n); }},
  };
  return all;
}

const std::vector<DrafterCase>& drafters() {
  static const std::vector<DrafterCase> all = {
      {"good, cheap", 0.1, 0.01, 2.0, 1.5, 0},       {"good, dear", 0.8, 0.2, 2.0, 1.5, 0}, {"middling", 0.3, 0.05, 0.5, 2.0, 0},
      {"bad, cheap", 0.1, 0.01, -1.5, 1.0, 0},       {"bad, dear", 0.8, 0.2, -1.5, 1.0, 0}, {"too sure of itself", 0.3, 0.05, -0.5, 1.0, 3},
      {"not sure of itself", 0.3, 0.05, 2.0, 1.0, -2}};
  return all;
}

struct LoadCase {
  const char* name;
  int num_runs;  // few requests scatter more
  std::function<int(int)> load;
};

std::vector<LoadCase> loads() {
  return {{"1", 12, [](int) { return 1; }},
          {"4", 6, [](int) { return 4; }},
          {"16", 2, [](int) { return 16; }},
          {"64", 1, [](int) { return 64; }},
          {"1 to 16", 3, [](int step) { return 1 + step / 3 % 16; }}};
}

TEST(DraftPolicySimulation, IsNotSlowerThanTheBetterOfPlainAndFull) {
  double worst_learned = 9;
  double worst_learning = 9;
  for (const Machine& machine : machines()) {
    for (const DrafterCase& drafter : drafters()) {
      for (const LoadCase& load : loads()) {
        Phases phases[3];
        for (int run = 0; run < load.num_runs; ++run) {
          for (const auto mode : {engine::SpeculationMode::off, engine::SpeculationMode::full, engine::SpeculationMode::confidence}) {
            Simulation simulation{machine, drafter, load.load, std::mt19937_64(static_cast<std::uint64_t>(run))};
            simulation.run(mode, phases[static_cast<std::size_t>(mode)]);
          }
        }
        const auto& [off, full, confidence] = phases;
        const double learned = confidence.learned.speed() / std::max(off.learned.speed(), full.learned.speed());
        const double learning = confidence.learning.speed() / std::max(off.learning.speed(), full.learning.speed());
        worst_learned = std::min(worst_learned, learned);
        worst_learning = std::min(worst_learning, learning);
        const std::string what = machine.name + ", " + drafter.name + ", " + load.name;
        EXPECT_GE(learned, 0.95) << what;
        EXPECT_GE(learning, 0.75) << what;
      }
    }
  }
  std::printf("of the better one, at the worst: %.3f, in the first %d steps %.3f\n", worst_learned, kLearned, worst_learning);
}

}  // namespace
}  // namespace deepinfer::test
