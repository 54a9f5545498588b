// The choice between plain steps, all drafts and some of them, on simulated machines: over every curve of step times, drafter and load it
// must not be slower than the better of plain and full, though it only sees noisy times and single outcomes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>
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

/// How clocks lie: by chance, by what else the machine does for a moment, and by how fast it is for a while.
struct Noise {
  const char* name;
  double scatter;          // of the logarithm
  double disturbed_share;  // of the steps
  double disturbed;        // factor
  double drift;            // of the logarithm; to and fro in kDriftSteps
  double at_least = 0.95;  // what is asked for of the better of plain and full, once learned
};
constexpr double kDriftSteps = 250;

const Noise kUsual = {"usual", 0.1, 0.02, 3, 0};
const Noise kSteady = {"steady", 0.02, 0, 1, 0};
const Noise kHeavy = {"heavy", 0.2, 0.05, 6, 0, 0.93};
const Noise kDrifting = {"drifting", 0.1, 0.02, 3, 0.25};

double noisy(double seconds, const Noise& noise, int step, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const double drift = noise.drift * std::sin(2 * std::numbers::pi * step / kDriftSteps);
  return seconds * std::exp(noise.scatter * normal(random) + drift) * (uniform(random) < noise.disturbed_share ? noise.disturbed : 1.0);
}

/// Tokens and undisturbed seconds by number of requests.
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
  const Noise& noise;
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
      expected_tokens += take_drafts(speculation, texts, report);
      if (drafts) {
        report.drafted = true;
        report.draft_seconds = noisy(pass_seconds(num_requests), noise, step, random);
      }
      report.seconds = noisy(machine.forward(report.num_rows), noise, step, random);
      Work& work = step < kLearned ? phases.learning : phases.learned;
      work.tokens[static_cast<std::size_t>(num_requests)] += expected_tokens;
      work.seconds[static_cast<std::size_t>(num_requests)] += machine.forward(report.num_rows) + (drafts ? pass_seconds(num_requests) : 0);
      speculation.record_step(report);
      const int next_requests = load(step + 1);
      drafts = !is_off && speculation.wants_drafts(next_requests);
      if (drafts) {
        speculation.record_draft_pass(pass_seconds(next_requests));
      }
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

  /// Plans as the engine does before every step, with drafts or without. Returns how many are accepted on average.
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
          {"64", 2, [](int) { return 64; }},
          {"1 to 16", 3, [](int step) { return 1 + step / 3 % 16; }},
          {"16 that end one by one", 6, [](int step) { return std::max(1, 16 - step % 48 / 2); }},
          {"1, 16, 4", 4, [](int step) { return std::array{1, 16, 4}[static_cast<std::size_t>(step / 40 % 3)]; }}};
}

/// Speeds as parts of those of the better of plain and full.
struct Outcome {
  double learning = 9;
  double learned = 9;

  void keep_worse(const Outcome& other) {
    learning = std::min(learning, other.learning);
    learned = std::min(learned, other.learned);
  }
};

Outcome simulate(const Machine& machine, const DrafterCase& drafter, const LoadCase& load, const Noise& noise) {
  Phases phases[3];
  for (int run = 0; run < load.num_runs; ++run) {
    for (const auto mode : {engine::SpeculationMode::off, engine::SpeculationMode::full, engine::SpeculationMode::confidence}) {
      Simulation simulation{machine, drafter, noise, load.load, std::mt19937_64(static_cast<std::uint64_t>(run))};
      simulation.run(mode, phases[static_cast<std::size_t>(mode)]);
    }
  }
  const auto& [off, full, confidence] = phases;
  const Outcome out{.learning = confidence.learning.speed() / std::max(off.learning.speed(), full.learning.speed()),
                    .learned = confidence.learned.speed() / std::max(off.learned.speed(), full.learned.speed())};
  EXPECT_GE(out.learned, noise.at_least) << machine.name << ", " << drafter.name << ", " << load.name << ", " << noise.name;
  EXPECT_GE(out.learning, 0.75) << machine.name << ", " << drafter.name << ", " << load.name << ", " << noise.name;
  return out;
}

void print(const char* what, const Outcome& worst) {
  std::printf("%s: of the better one at the worst %.3f, in the first %d steps %.3f\n", what, worst.learned, kLearned, worst.learning);
}

TEST(DraftPolicySimulation, IsNotSlowerThanTheBetterOfPlainAndFull) {
  Outcome worst;
  for (const Machine& machine : machines()) {
    for (const DrafterCase& drafter : drafters()) {
      for (const LoadCase& load : loads()) {
        worst.keep_worse(simulate(machine, drafter, load, kUsual));
      }
    }
  }
  print("curves of all kinds", worst);
}

/// Straight between what was measured of nano on 2 and 16 cores (docs/performance.md): there full steps are about as good as plain ones.
Machine measured(std::string name, std::vector<std::pair<double, double>> points) {
  return {std::move(name), [points = std::move(points)](double n) {
            std::size_t next = 1;
            while (next + 1 < points.size() && points[next].first < n) {
              ++next;
            }
            const auto [from, from_seconds] = points[next - 1];
            const auto [to, to_seconds] = points[next];
            return from_seconds + (to_seconds - from_seconds) * (n - from) / (to - from);
          }};
}

TEST(DraftPolicySimulation, ClocksThatLieOnMeasuredMachines) {
  const std::vector<std::pair<Machine, DrafterCase>> cases = {
      {measured("16 cores", {{1, 0.82}, {4, 1.8}, {6, 2.05}, {16, 4.0}, {24, 5.2}, {96, 13}}), {"nano's", 0.4, 0.17, 2.0, 1.5, 0}},
      {measured("2 cores", {{1, 1.03}, {4, 3.2}, {6, 3.6}, {16, 10.6}, {24, 11.5}, {96, 42}}), {"nano's", 0.6, 0.4, 2.0, 1.5, 0}},
  };
  for (const Noise* noise : {&kSteady, &kUsual, &kHeavy, &kDrifting}) {
    Outcome worst;
    for (const auto& [machine, drafter] : cases) {
      for (const double mean_logit : {1.0, 1.5, 2.0, 3.0}) {
        DrafterCase other = drafter;
        other.mean_logit = mean_logit;
        other.name += " " + std::to_string(mean_logit);
        for (LoadCase& load : loads()) {
          load.num_runs *= 2;
          worst.keep_worse(simulate(machine, other, load, *noise));
        }
      }
    }
    print(noise->name, worst);
  }
}

}  // namespace
}  // namespace deepinfer::test
