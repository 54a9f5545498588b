// Tokens of rows of logits (sampling/sampler.h) with the bits of the CPU: a cluster of blocks holds one row in its shared memories, every
// sum of weights runs in the order of sampling::ColumnSum, masses are whole units, and the noise is a function of seed, position and column.
#include <cstdint>

#include "backends/cuda/kernels/draw_noise.cuh"
#include "backends/cuda/kernels/draw_prefix.cuh"
#include "backends/cuda/kernels/draw_row.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace draw {
namespace {

/// Limits of a row's kept columns besides -infinity.
struct Limits {
  bool mass, count;

  __device__ Limits(const TokenDraw& draw, std::int32_t vocab) : mass(draw.top_p < 1.0), count(draw.top_k >= 0 && draw.top_k < vocab) {}
};

/// Masses are needed only where they are limited; columns without a unit of mass count only where their number is limited.
__device__ Prefix kept_prefix(const Limits& limits, const TokenDraw& draw, const Weights& weights, const Slice& slice, std::int32_t vocab,
                              Shared& shared) {
  if (!limits.mass) {
    return limits.count ? find_prefix(slice, kRemoved, INT64_MAX, draw.top_k, shared, [](float) { return 0U; }) : Prefix{};
  }
  constexpr double kLogUnits = 21.5;  // above 31 ln 2
  const double total = sum_row(slice, vocab, shared, [&](std::int32_t i) { return weights(slice.values[i]); });
  const double units_per_weight = sampling::kMassUnits / total;
  const double no_mass = weights.largest + (sampling::log_positive(total) - kLogUnits) * draw.temperature;
  return find_prefix(slice, limits.count ? kRemoved : fmaxf(kRemoved, __double2float_rd(no_mass)),
                     static_cast<std::int64_t>(draw.top_p * sampling::kMassUnits) + 1, limits.count ? draw.top_k : kNoColumnLimit, shared,
                     [&](float logit) { return static_cast<std::uint32_t>(weights(logit) * units_per_weight); });
}

/// A row whose largest logit is known, 0: none above -infinity. Apart from the usual way, which then needs fewer registers.
__device__ __noinline__ std::int32_t draw_generally(const std::uint32_t* mask, const TokenDraw& draw, std::int32_t vocab, const Slice& slice,
                                                    std::uint64_t own, std::uint64_t best, Shared& shared) {
  if (best == 0) {
    own = level_row(mask, slice);
    best = cluster_largest(own, 1, shared);
  }
  if (best == 0) {
    return kNothingAllowed;
  }
  const std::int32_t largest = column_of(best);
  if (draw.temperature < sampling::kGreedyBelow) {
    return largest;
  }
  const float peak = value_of(static_cast<std::uint32_t>(best >> 32));
  const Weights weights{.largest = peak, .inverse_temperature = 1.0 / draw.temperature};
  const Prefix prefix = kept_prefix(Limits(draw, vocab), draw, weights, slice, vocab, shared);
  const auto kept = [&](std::int32_t i) {
    return prefix.has(slice.values[i], slice.first + i) && (draw.min_p <= 0.0 || weights(slice.values[i]) >= draw.min_p);
  };
  const sampling::RandomKey random{.seed = draw.seed, .position = draw.position};
  if (draw.temperature <= kHighestTemperature) {
    const float least = prefix.is_all ? kRemoved : value_of(prefix.key);
    const TopTwo top = cluster_top(noisy_top(slice, random, weights, least, own, kept, shared), shared);
    if (top.best - top.second > kRounding) {
      return top.column;
    }
  }
  const double log_total =
      sampling::log_positive(sum_row(slice, vocab, shared, [&](std::int32_t i) { return kept(i) ? weights(slice.values[i]) : 0.0; }));
  const auto log_prob = [&](float logit) { return static_cast<float>(weights.exponent(logit) - log_total); };
  const float at_least = log_prob(peak) + sampling::noise_at(random, largest);
  return column_of(cluster_largest(noisy_best(slice, random, at_least, kept, log_prob), 2, shared));
}

/// Tells all blocks of the cluster what this one found; what all have found, sums relative to the largest logit.
__device__ __forceinline__ BlockFound exchange(const BlockFound& own, double inverse_temperature, Shared& shared) {
  if (threadIdx.x < kClusterBlocks) {
    std::uint64_t* const place = shared.sent[cluster_rank()];
    send(&shared.inbox, place, own.best, static_cast<std::uint64_t>(own.top.column), threadIdx.x);
    send(&shared.inbox, place + 2, __double_as_longlong(own.top.best), __double_as_longlong(own.top.second), threadIdx.x);
  }
  see_inbox(&shared.inbox);
  BlockFound out;
#pragma unroll
  for (int b = 0; b < kClusterBlocks; ++b) {
    out.best = larger(out.best, shared.sent[b][0]);
  }
  const double largest = value_of(static_cast<std::uint32_t>(out.best >> 32));
#pragma unroll
  for (int b = 0; b < kClusterBlocks; ++b) {
    const double lower = (value_of(static_cast<std::uint32_t>(shared.sent[b][0] >> 32)) - largest) * inverse_temperature;
    if (shared.sent[b][0] != 0) {
      out.top.join({.best = __longlong_as_double(static_cast<long long>(shared.sent[b][2])) + lower,
                    .second = __longlong_as_double(static_cast<long long>(shared.sent[b][3])) + lower,
                    .column = static_cast<std::int32_t>(shared.sent[b][1])});
    }
  }
  return out;
}

template <int kWide>
__device__ std::int32_t draw_row(const float* logits, const std::uint32_t* mask, const TokenDraw& draw, std::int32_t vocab, const Slice& slice,
                                 Shared& shared) {
  constexpr std::uint64_t kBad = ~std::uint64_t{0};
  const Limits limits(draw, vocab);
  const bool is_greedy = draw.temperature < sampling::kGreedyBelow;
  const bool is_usual = !limits.mass && !limits.count && draw.min_p <= 0.0 && draw.temperature <= kHighestTemperature;
  if (threadIdx.x == 0) {
    open_inbox(&shared.inbox, sizeof(shared.sent));
  }
  cluster_arrive();
  bool bad = false;
  const std::uint64_t own = load_row<kWide>(logits, mask, slice, bad);
  BlockFound found{.best = block_largest(bad ? kBad : own, shared), .top = {}};
  const double inverse_temperature = 1.0 / draw.temperature;
  if (is_usual && !is_greedy && found.best != 0 && found.best != kBad) {
    const Weights weights{.largest = value_of(static_cast<std::uint32_t>(found.best >> 32)), .inverse_temperature = inverse_temperature};
    found.top = block_top(noisy_top(slice, {.seed = draw.seed, .position = draw.position}, weights, kRemoved, own,
                                    [&](std::int32_t i) { return slice.values[i] > kRemoved; }, shared),
                          shared);
  }
  cluster_wait();
  const BlockFound all = exchange(found, inverse_temperature, shared);
  if (all.best == kBad) {
    return kRowNotFinite;
  }
  if (all.best == 0 && mask == nullptr) {
    return kNothingAllowed;
  }
  if (is_greedy && all.best != 0) {
    return column_of(all.best);
  }
  if (is_usual && all.best != 0 && all.top.best - all.top.second > kRounding) {
    return all.top.column;
  }
  const std::int32_t token = draw_generally(mask, draw, vocab, slice, own, all.best, shared);
  cluster_barrier();  // the other blocks read this one's memory
  return token;
}

/// kWide: columns that are read at once.
template <int kWide>
__global__ void __launch_bounds__(kThreads, 2) draw_tokens_kernel(DrawTokensParams p) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  begin_in_turn();
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const std::int64_t r = blockIdx.y;
  const TokenDraw draw = p.draw[r];
  const std::int32_t columns = sums_per_block(p.vocab) * kSumBlock;
  const std::int32_t first = static_cast<std::int32_t>(cluster_rank()) * columns;
  const Slice slice{.values = reinterpret_cast<float*>(memory + sizeof(Shared)),
                    .first = first,
                    .size = max(0, min(columns, p.vocab - first)),
                    .columns = columns};
  const float* logits = p.logits + (p.row_index != nullptr ? p.row_index[r] : r) * p.vocab;
  const std::uint32_t* mask = draw.mask >= 0 ? p.masks + static_cast<std::int64_t>(draw.mask) * ((p.vocab + 31) / 32) : nullptr;
  const std::int32_t token = draw_row<kWide>(logits, mask, draw, p.vocab, slice, shared);
  if (cluster_rank() == 0 && threadIdx.x == 0) {
    p.token[r] = p.always ? max(token, 0) : token;
  }
}

}  // namespace
}  // namespace draw

void draw_tokens(const DrawTokensParams& p, cudaStream_t stream) {
  constexpr int kWide = 4;
  const bool is_wide = p.vocab % kWide == 0 && reinterpret_cast<std::uintptr_t>(p.logits) % (kWide * sizeof(float)) == 0;
  start(is_wide ? draw::draw_tokens_kernel<kWide> : draw::draw_tokens_kernel<1>,
        {.grid = dim3(draw::kClusterBlocks, p.num_rows),
         .block = draw::kThreads,
         .shared_bytes = sizeof(draw::Shared) + static_cast<std::size_t>(draw::sums_per_block(p.vocab) * draw::kSumBlock) * sizeof(float),
         .cluster = draw::kClusterBlocks},
        stream, p);
}

}  // namespace deepinfer::cuda
