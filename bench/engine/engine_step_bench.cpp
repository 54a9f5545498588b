// Usage: engine_step_bench MODEL_DIR [cpu|cuda] [context=16] [steps=400] [REQUESTS...]
// Decode steps of a whole engine, without drafts, planning ahead: time of a step, of it the forward from launch to tokens, and the rest, in which
// the device waits for the host. Greedy and with temperature and top-p, since tokens are drawn by the device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "engine/load.h"

namespace deepinfer::bench {
namespace {

struct Settings {
  std::int32_t context = 16;  // tokens of a prompt
  std::int32_t steps = 400;
  std::vector<std::int32_t> loads;
};

constexpr std::int32_t kMostRows = 2048;  // of a step with prompts

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double>& values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void measure(engine::Engine& engine, const Settings& settings, std::int32_t num_requests, double temperature) {
  for (std::int32_t i = 0; i < num_requests; ++i) {
    engine::GenerationRequest request{.prompt = std::vector<TokenId>(static_cast<std::size_t>(settings.context), TokenId{i % 1000 + 100}),
                                      .sampling = {.temperature = temperature, .top_p = 0.95, .seed = static_cast<std::uint64_t>(i)},
                                      .max_tokens = 2 * settings.steps + num_requests * settings.context / kMostRows,
                                      .ignore_eos = true};
    if (!engine.submit(std::move(request), [](engine::Output&&) {})) {
      std::exit(1);
    }
  }
  constexpr auto kDecode = static_cast<std::size_t>(engine::StepKind::decode);
  const auto decoded = [&] { return engine.stats().step_times[kDecode].forward.sum_seconds; };
  for (const auto before = decoded(); decoded() == before;) {  // prompts
    engine.step();
  }
  for (std::int32_t i = 0; i < settings.steps / 2; ++i) {  // every shape of step comes up
    engine.step();
  }
  std::vector<double> steps;
  std::vector<double> rest;
  for (std::int32_t i = 0; i < settings.steps; ++i) {
    const double host_before = engine.stats().step_times[kDecode].host.sum_seconds;
    const double begin = seconds_now();
    engine.step();
    steps.push_back(seconds_now() - begin);
    rest.push_back(engine.stats().step_times[kDecode].host.sum_seconds - host_before);
  }
  engine.cancel_all();
  while (engine.step()) {
  }
  std::printf("%4d requests, temperature %.1f: step %9.1f us, of it outside the forward %7.1f us\n", num_requests, temperature, 1e6 * median(steps),
              1e6 * median(rest));
  std::fflush(stdout);
}

int main_with(const std::string& directory, std::string_view name, const Settings& settings) {
  auto device = name == "cuda" ? cuda::make_device({}) : Result<std::unique_ptr<Device>>(cpu::make_device({}));
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().message.c_str());
    return 1;
  }
  const std::int32_t most = *std::ranges::max_element(settings.loads);
  auto loaded = engine::load_engine(directory,
                                    {.max_requests = most,
                                     .max_batched_tokens = kMostRows,
                                     .max_model_len = settings.context + 4 * settings.steps + most,
                                     .prefix_cache = false,
                                     .speculation = engine::SpeculationMode::off,
                                     .max_drafts = 0,
                                     .overlap_depth = 1},
                                    **device);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", (*device)->info().description.c_str());
  for (const std::int32_t num_requests : settings.loads) {
    for (const double temperature : {0.0, 0.8}) {
      measure(*loaded->engine, settings, num_requests, temperature);
    }
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: engine_step_bench MODEL_DIR [cpu|cuda] [context=16] [steps=400] [REQUESTS...]\n");
    return 2;
  }
  deepinfer::bench::Settings settings;
  for (const std::string_view argument : std::span(arguments, static_cast<std::size_t>(count)).subspan(std::min(count, 3))) {
    const std::size_t value = argument.find('=') + 1;  // 0: a number of requests
    const std::int32_t number = std::max(1, std::atoi(argument.data() + value));
    if (value == 0) {
      settings.loads.push_back(number);
    } else {
      (argument.starts_with("context") ? settings.context : settings.steps) = number;
    }
  }
  if (settings.loads.empty()) {
    settings.loads = {1, 16, 64};
  }
  return deepinfer::bench::main_with(arguments[1], count > 2 ? arguments[2] : "cpu", settings);
}
