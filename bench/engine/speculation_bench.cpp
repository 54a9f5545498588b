// Usage: speculation_bench [MODEL_DIR] [THREADS]
// The same prompts (samples.json of the model) without drafts, with all drafts verified and with lengths by confidence, at 1, 4 and 16 requests and
// temperatures 0, 0.6 and 1, and both verification rules: tokens per second and accepted lengths. Modes take turns, medians of several rounds.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "base/json.h"
#include "engine/load.h"

namespace deepinfer::bench {
namespace {

using engine::SpeculationMode;
using engine::VerificationRule;

constexpr std::size_t kRounds = 5;

std::vector<std::vector<TokenId>> sample_prompts(const std::filesystem::path& model) {
  std::ifstream file(model / "samples.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto samples = json::parse(text.str());
  std::vector<std::vector<TokenId>> out;
  if (!samples || samples->as_array() == nullptr) {
    return out;
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

struct Way {
  const char* name;
  SpeculationMode mode;
  VerificationRule rule = VerificationRule::coupled;
};

struct Load {
  std::int32_t num_requests;
  double temperature;
};

/// One engine that answers the prompts again and again.
class Runner {
 public:
  Runner(const std::filesystem::path& model, Device& device, const Way& way, std::int32_t num_requests) {
    auto loaded = engine::load_engine(
        model,
        {.max_requests = num_requests, .max_batched_tokens = 512, .max_model_len = 2048, .speculation = way.mode, .verification_rule = way.rule}, device);
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      std::exit(1);
    }
    engine_ = std::move(loaded->engine);
  }

  /// Seconds per generated token while every place is taken by decoding requests: the prompts are computed before.
  double round(const std::vector<std::vector<TokenId>>& prompts, const Load& load) {
    double seconds = 0;
    std::int64_t num_tokens = 0;
    for (std::size_t first = 0; first < prompts.size(); first += static_cast<std::size_t>(load.num_requests)) {
      for (std::int32_t i = 0; i < load.num_requests; ++i) {
        const auto& prompt = prompts[(first + static_cast<std::size_t>(i)) % prompts.size()];
        engine::GenerationRequest request{.prompt = prompt,
                                          .sampling = {.temperature = load.temperature, .seed = first + static_cast<std::size_t>(i)},
                                          .max_tokens = 64};
        if (!engine_->submit(std::move(request), [](engine::Output&&) {})) {
          std::exit(1);
        }
      }
      while (engine_->stats().num_waiting > 0 || is_prefilling()) {
        engine_->step();
      }
      const std::int64_t before = engine_->stats().num_generated_tokens;
      const auto begin = std::chrono::steady_clock::now();
      while (engine_->step()) {
      }
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      num_tokens += engine_->stats().num_generated_tokens - before;
    }
    return seconds / static_cast<double>(num_tokens);
  }

  const engine::EngineStats stats() const { return engine_->stats(); }

 private:
  /// Until a step brings no prompt row.
  bool is_prefilling() {
    const std::int64_t before = engine_->stats().num_prefill_tokens;
    return engine_->step() && engine_->stats().num_prefill_tokens > before;
  }

  std::unique_ptr<engine::Engine> engine_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(const std::filesystem::path& model, std::int32_t num_threads) {
  const auto device = cpu::make_device({.num_threads = num_threads});
  std::printf("device: %s\n", device->info().description.c_str());
  const auto prompts = sample_prompts(model);
  constexpr std::array kWays = {Way{"off", SpeculationMode::off}, Way{"full", SpeculationMode::full}, Way{"confidence", SpeculationMode::confidence},
                                Way{"full, rejection", SpeculationMode::full, VerificationRule::rejection}};
  for (const Load load : {Load{1, 0.0}, Load{4, 0.0}, Load{16, 0.0}, Load{1, 0.6}, Load{1, 1.0}}) {
    std::vector<Runner> runners;
    for (const Way& way : kWays) {
      runners.emplace_back(model, *device, way, load.num_requests);
    }
    std::vector<std::vector<double>> seconds(kWays.size());
    for (std::size_t round = 0; round <= kRounds; ++round) {
      for (std::size_t way = 0; way < kWays.size(); ++way) {
        const double per_token = runners[way].round(prompts, load);
        if (round > 0) {
          seconds[way].push_back(per_token);
        }
      }
    }
    std::printf("\n%d requests, temperature %.1f\n", load.num_requests, load.temperature);
    const double plain = median(seconds[0]);
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      const engine::SpeculationStats stats = runners[way].stats().speculation;
      const double length = stats.num_rounds > 0 ? 1 + static_cast<double>(stats.num_accepted) / static_cast<double>(stats.num_rounds) : 1;
      const double verified = stats.num_rounds > 0 ? static_cast<double>(stats.num_verified) / static_cast<double>(stats.num_rounds) : 0;
      const double pass = stats.num_draft_passes > 0 ? 1e6 * stats.draft_seconds / static_cast<double>(stats.num_draft_passes) : 0;
      std::printf("  %-16s %7.0f tokens/s  %.2f x  accepted length %.2f, drafts verified %.2f, draft pass %.0f us, in %.0f %% of steps\n", kWays[way].name,
                  1 / median(seconds[way]), plain / median(seconds[way]), length, verified, pass,
                  100.0 * static_cast<double>(stats.num_draft_passes) / static_cast<double>(runners[way].stats().num_steps));
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  deepinfer::bench::run(argc > 1 ? argv[1] : "models/nano", argc > 2 ? std::atoi(argv[2]) : 0);
  return 0;
}
