#include "backends/cpu/machine_probe.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/fast/amx.h"
#include "backends/cpu/fast/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/machine_probe.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Ten independent chains of multiply-adds; returns the FLOPs done and a value that depends on all of them.
double multiply_add(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999F);
  const auto b = hn::Set(d, 0.001F);
  // Chains that begin differently, or a compiler would see that one is enough.
  const auto begin = [&](float value) HWY_ATTR { return hn::Set(d, value); };
  auto c0 = begin(0.0F), c1 = begin(1.0F), c2 = begin(2.0F), c3 = begin(3.0F), c4 = begin(4.0F);
  auto c5 = begin(5.0F), c6 = begin(6.0F), c7 = begin(7.0F), c8 = begin(8.0F), c9 = begin(9.0F);
  for (std::int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, a, b);
    c1 = hn::MulAdd(c1, a, b);
    c2 = hn::MulAdd(c2, a, b);
    c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b);
    c5 = hn::MulAdd(c5, a, b);
    c6 = hn::MulAdd(c6, a, b);
    c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b);
    c9 = hn::MulAdd(c9, a, b);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(hn::Add(c6, c7), hn::Add(c8, c9))));
  *sink = hn::GetLane(sum);
  return 20.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

/// Sum of 64-bit words.
std::uint64_t read_words(const std::uint64_t* words, std::size_t count) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d);
  auto b = hn::Zero(d);
  for (std::size_t i = 0; i + 2 * lanes <= count; i += 2 * lanes) {
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + lanes));
  }
  return hn::GetLane(hn::Add(a, b));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(multiply_add);
HWY_EXPORT(read_words);

namespace {

constexpr int kRounds = 7;

/// Best amount per second over several rounds; work(thread) returns the amount it did.
template <class Work>
double best_rate(std::int32_t num_threads, const Work& work) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> amount(static_cast<std::size_t>(num_threads));
    const auto begin = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < amount.size(); ++t) {
        threads.emplace_back([&, t] { amount[t] = work(t); });
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, std::accumulate(amount.begin(), amount.end(), 0.0) / seconds);
  }
  return best;
}

}  // namespace

MachineLimits probe_machine(std::int32_t num_threads) {
  constexpr std::size_t kWords = std::size_t{1} << 24;  // 128 MiB per thread
  std::vector<std::vector<std::uint64_t>> memory(static_cast<std::size_t>(num_threads), std::vector<std::uint64_t>(kWords, 1));
  std::vector<std::uint64_t> sums(memory.size());
  std::vector<float> sinks(memory.size());
  MachineLimits out;
  out.bytes_per_second = best_rate(num_threads, [&](std::size_t t) {
    sums[t] = HWY_DYNAMIC_DISPATCH(read_words)(memory[t].data(), kWords);
    return static_cast<double>(kWords * sizeof(std::uint64_t));
  });
  constexpr std::int64_t kMultiplyAdds = std::int64_t{2} << 20;
  out.flops_per_second = best_rate(num_threads, [&](std::size_t t) { return HWY_DYNAMIC_DISPATCH(multiply_add)(kMultiplyAdds, &sinks[t]); });
  const ProductUnit unit = best_product_unit();
  out.quantised_flops_per_second = unit == ProductUnit::vector ? out.flops_per_second : best_rate(num_threads, [unit](std::size_t) {
    return unit == ProductUnit::matrix ? amx::multiply_in_registers(kMultiplyAdds / 8) : pairs::multiply_in_registers(kMultiplyAdds);
  });
  return out;
}

}  // namespace deepinfer::cpu
#endif
