// Usage: speculation_bench [MODEL_DIR] [THREADS] [--rounds N] [--loads 1,4,16] [--temperature T] [--thread-time] [--trace]
// The same prompts (samples.json of the model) without drafts, with all drafts verified and with lengths by confidence, and by the
// rejection rule. A load is so many requests that begin together and end one by one; such a group is a turn. The ways take turns in
// changing order, so that a slow moment of the machine meets them all, and are compared turn by turn: ratios with [quartiles and median].
// Steps with prompt rows do not count, nor does the first round.
//   --thread-time  processor time of one thread, for the figures and for the engines' own clocks: steadier on a machine with other work
//   --trace        by tenths of the run: how often drafts were made, and what the policy expects beside what is so
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "base/clock.h"
#include "base/json.h"
#include "engine/load.h"

namespace deepinfer::bench {
namespace {

using engine::SpeculationMode;
using engine::VerificationRule;

constexpr std::int32_t kMaxTokens = 64;

/// Processor time of the calling thread.
class ThreadTime final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

struct Options {
  std::string model = "models/nano";
  std::int32_t num_threads = 0;
  std::size_t num_rounds = 20;
  std::vector<std::int32_t> loads = {1, 4, 16};  ///< requests
  double temperature = 0;
  bool in_thread_time = false;
  bool traces = false;
};

struct Way {
  const char* name;
  SpeculationMode mode;
  VerificationRule rule = VerificationRule::coupled;
};
constexpr std::array kWays = {Way{"off", SpeculationMode::off}, Way{"full", SpeculationMode::full},
                              Way{"confidence", SpeculationMode::confidence},
                              Way{"full, rejection", SpeculationMode::full, VerificationRule::rejection}};
constexpr std::size_t kOff = 0;
constexpr std::size_t kFull = 1;
constexpr std::size_t kConfidence = 2;

std::unique_ptr<const Clock> make_clock(const Options& options) {
  return options.in_thread_time ? std::unique_ptr<const Clock>(std::make_unique<ThreadTime>()) : std::make_unique<SteadyClock>();
}

std::vector<std::vector<TokenId>> sample_prompts(const std::filesystem::path& model) {
  std::ifstream file(model / "samples.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto samples = json::parse(text.str());
  std::vector<std::vector<TokenId>> out;
  if (!samples || samples->as_array() == nullptr) {
    std::fprintf(stderr, "%s has no samples.json\n", model.c_str());
    std::exit(1);
  }
  for (const json::Value& sample : *samples->as_array()) {
    std::vector<TokenId> prompt;
    for (const json::Value& id : *sample.find("prompt_ids")->as_array()) {
      prompt.push_back({static_cast<std::int32_t>(*id.as_number()->as_int64())});
    }
    out.push_back(std::move(prompt));
  }
  return out;
}

/// Steps of decoding requests only.
struct Work {
  std::int64_t num_steps = 0;
  std::int64_t num_drafted = 0;  ///< of these, behind a draft pass
  std::int64_t num_tokens = 0;
  double seconds = 0;

  Work& operator+=(const Work& other) {
    num_steps += other.num_steps;
    num_drafted += other.num_drafted;
    num_tokens += other.num_tokens;
    seconds += other.seconds;
    return *this;
  }
  [[nodiscard]] double speed() const { return seconds > 0 ? static_cast<double>(num_tokens) / seconds : 0; }
};

struct Turn {
  Work all;
  Work at_full_load;  ///< before the first request ended
  engine::WaySpeeds expected;  ///< at full load
};

/// One engine that answers the prompts again and again.
class Runner {
 public:
  Runner(const Options& options, Device& device, const Way& way, std::int32_t num_requests)
      : num_requests_(num_requests), temperature_(options.temperature), clock_(make_clock(options)) {
    auto loaded = engine::load_engine(options.model,
                                      {.max_requests = num_requests,
                                       .max_batched_tokens = 512,
                                       .max_model_len = 2048,
                                       .speculation = way.mode,
                                       .verification_rule = way.rule},
                                      device, {}, make_clock(options));
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      std::exit(1);
    }
    engine_ = std::move(loaded->engine);
  }

  /// Answers a group of prompts, the first of which is prompts[first].
  Turn turn(const std::vector<std::vector<TokenId>>& prompts, std::size_t first) {
    for (std::size_t i = first; i < first + static_cast<std::size_t>(num_requests_); ++i) {
      const std::size_t number = i % prompts.size();
      engine::GenerationRequest request{
          .prompt = prompts[number], .sampling = {.temperature = temperature_, .seed = number}, .max_tokens = kMaxTokens};
      if (!engine_->submit(std::move(request), [](engine::Output&&) {})) {
        std::exit(1);
      }
    }
    Turn out;
    while (engine_->has_work()) {
      const bool is_full = engine_->stats().num_running == num_requests_;
      const Work work = step();
      out.all += work;
      if (is_full) {
        out.at_full_load += work;
      }
      if (engine_->stats().num_running == num_requests_) {
        out.expected = engine_->stats().speculation.expected;
      }
    }
    return out;
  }

  [[nodiscard]] engine::EngineStats stats() const { return engine_->stats(); }

 private:
  Work step() {
    const engine::EngineStats before = engine_->stats();
    const TimePoint begin = clock_->now();
    engine_->step();
    const double seconds = std::chrono::duration<double>(clock_->now() - begin).count();
    const engine::EngineStats after = engine_->stats();
    if (after.num_prefill_tokens > before.num_prefill_tokens) {
      return {};
    }
    return {.num_steps = 1,
            .num_drafted = after.speculation.num_verified > before.speculation.num_verified ? 1 : 0,
            .num_tokens = after.num_generated_tokens - before.num_generated_tokens,
            .seconds = seconds};
  }

  std::int32_t num_requests_ = 0;
  double temperature_ = 0;
  std::unique_ptr<const Clock> clock_;
  std::unique_ptr<engine::Engine> engine_;
};

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};
Quartiles quartiles(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n == 0 ? Quartiles{} : Quartiles{values[n / 4], values[n / 2], values[(3 * n) / 4]};
}

using Turns = std::vector<Turn>;

Work sum(std::span<const Turn> turns, Work Turn::*part = &Turn::all) {
  Work out;
  for (const Turn& turn : turns) {
    out += turn.*part;
  }
  return out;
}

/// By turn: how much faster `way` was than `other`.
Quartiles compare(const Turns& way, const Turns& other) {
  std::vector<double> ratios;
  for (std::size_t turn = 0; turn < way.size(); ++turn) {
    ratios.push_back(way[turn].all.speed() / other[turn].all.speed());
  }
  return quartiles(std::move(ratios));
}

void print_trace(const std::array<Turns, kWays.size()>& turns) {
  constexpr std::size_t kParts = 10;
  std::printf("  with all requests at work: off, full, confidence; drafts in; expected of plain, scheduled and full steps\n");
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto of_part = [&](std::size_t way) {
      const std::size_t begin = turns[way].size() * part / kParts;
      const std::size_t end = turns[way].size() * (part + 1) / kParts;
      return std::span(turns[way]).subspan(begin, end - begin);
    };
    const auto speed = [&](std::size_t way) { return sum(of_part(way), &Turn::at_full_load).speed(); };
    const Work confidence = sum(of_part(kConfidence), &Turn::at_full_load);
    engine::WaySpeeds mean;
    for (const Turn& turn : of_part(kConfidence)) {
      mean.plain += turn.expected.plain;
      mean.scheduled += turn.expected.scheduled;
      mean.full += turn.expected.full;
    }
    const double count = std::max(static_cast<double>(of_part(kConfidence).size()), 1.0);
    std::printf("    %5.0f %5.0f %5.0f   %3.0f %% of %lld steps   %5.0f %5.0f %5.0f\n", speed(kOff), speed(kFull), speed(kConfidence),
                100.0 * static_cast<double>(confidence.num_drafted) / std::max(static_cast<double>(confidence.num_steps), 1.0),
                static_cast<long long>(confidence.num_steps), mean.plain / count, mean.scheduled / count, mean.full / count);
  }
}

void print(const std::array<Turns, kWays.size()>& turns, const std::array<engine::SpeculationStats, kWays.size()>& stats) {
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    const engine::SpeculationStats& s = stats[way];
    const Work work = sum(turns[way]);
    const Quartiles over_off = compare(turns[way], turns[kOff]);
    const double num_rounds = std::max(static_cast<double>(s.num_rounds), 1.0);
    std::printf("  %-16s %7.0f tokens/s  %.3f x [%.3f %.3f %.3f]  accepted length %.2f, drafts verified %.2f, in %.0f %% of steps\n",
                kWays[way].name, work.speed(), work.speed() / sum(turns[kOff]).speed(), over_off.low, over_off.median, over_off.high,
                1 + static_cast<double>(s.num_accepted) / num_rounds, static_cast<double>(s.num_verified) / num_rounds,
                100.0 * static_cast<double>(work.num_drafted) / static_cast<double>(work.num_steps));
  }
  const bool drafts_pay = sum(turns[kFull]).speed() > sum(turns[kOff]).speed();
  const Turns& better = turns[drafts_pay ? kFull : kOff];
  const Quartiles paired = compare(turns[kConfidence], better);
  std::printf("  confidence / %s: %.3f [%.3f %.3f %.3f]\n", drafts_pay ? "full" : "off",
              sum(turns[kConfidence]).speed() / sum(better).speed(), paired.low, paired.median, paired.high);
}

void run_load(const Options& options, Device& device, std::int32_t num_requests, const std::vector<std::vector<TokenId>>& prompts) {
  std::vector<std::unique_ptr<Runner>> runners;
  for (const Way& way : kWays) {
    runners.push_back(std::make_unique<Runner>(options, device, way, num_requests));
  }
  std::array<Turns, kWays.size()> turns;
  const std::size_t group = static_cast<std::size_t>(num_requests);
  const std::size_t turns_per_round = (prompts.size() + group - 1) / group;
  for (std::size_t turn = 0; turn < (options.num_rounds + 1) * turns_per_round; ++turn) {
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      const std::size_t way = (i + turn) % kWays.size();
      const Turn result = runners[way]->turn(prompts, turn * group);
      if (turn >= turns_per_round) {
        turns[way].push_back(result);
      }
    }
  }
  std::printf("\n%d requests, temperature %.1f, %zu turns\n", num_requests, options.temperature, turns[kOff].size());
  std::array<engine::SpeculationStats, kWays.size()> stats;
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    stats[way] = runners[way]->stats().speculation;
  }
  print(turns, stats);
  if (options.traces) {
    print_trace(turns);
  }
  std::fflush(stdout);
}

std::vector<std::int32_t> parse_loads(const char* text) {
  std::vector<std::int32_t> out;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    out.push_back(std::max(1, std::atoi(item.c_str())));
  }
  return out;
}

Options parse(int argc, char** argv) {
  Options out;
  int num_plain = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--thread-time") {
      out.in_thread_time = true;
      out.num_threads = 1;
    } else if (word == "--trace") {
      out.traces = true;
    } else if (word == "--rounds") {
      out.num_rounds = static_cast<std::size_t>(std::max(1, std::atoi(value)));
      ++i;
    } else if (word == "--loads") {
      out.loads = parse_loads(value);
      ++i;
    } else if (word == "--temperature") {
      out.temperature = std::atof(value);
      ++i;
    } else if (num_plain++ == 0) {
      out.model = word;
    } else {
      out.num_threads = std::atoi(argv[i]);
    }
  }
  return out;
}

void run(const Options& options) {
  const auto device = cpu::make_device({.num_threads = options.num_threads});
  std::printf("device: %s%s\n", device->info().description.c_str(), options.in_thread_time ? ", processor time" : "");
  const auto prompts = sample_prompts(options.model);
  for (const std::int32_t load : options.loads) {
    run_load(options, *device, load, prompts);
  }
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  deepinfer::bench::run(deepinfer::bench::parse(argc, argv));
  return 0;
}
