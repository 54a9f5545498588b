// Input of a sub-layer: streams joined, norm, quantisation (docs/spec/model.md 5.1-5.3).
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "backends/cuda/kernels/block_sums.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/row_vectors.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kUsualStreams = 4;

__global__ void collapse_norm_kernel(CollapseNormParams p) {
  begin_in_turn();
  extern __shared__ bf16 x[];
  __shared__ BlockSums<1> sums;
  const std::int64_t r = blockIdx.x;
  const bf16* h = row_at(p.h, r, static_cast<std::int64_t>(p.streams) * p.hidden);
  for (std::int32_t c = threadIdx.x; c < p.hidden; c += kRowThreads) {
    double sum = 0;
    for (std::int32_t s = 0; s < p.streams; ++s) {
      sum += static_cast<double>(p.pre[r * p.streams + s]) * to_float(row_at(h, s, p.hidden)[c]);
    }
    x[c] = round_bf16(sum);
    if (p.x != nullptr) {
      row_at(p.x, r, p.hidden)[c] = x[c];
    }
  }
  __syncthreads();
  norm_row(x, p.weight, p.hidden, p.norm_eps, x, sums);
  for (std::int32_t c = threadIdx.x; c < p.hidden; c += kRowThreads) {
    row_at(p.y, r, p.hidden)[c] = x[c];
    if (p.q8.codes != nullptr) {
      store_q8(x[c], c, row_at(p.q8.codes, r, p.hidden), row_at(p.q8.scales, r, p.hidden / kQ8Group));
    }
  }
}

/// bf16(sum of h times pre) in double precision.
__device__ __noinline__ float collapse_exactly(float4 h, float4 pre) {
  double sum = 0;
  sum += static_cast<double>(pre.x) * h.x;
  sum += static_cast<double>(pre.y) * h.y;
  sum += static_cast<double>(pre.z) * h.z;
  sum += static_cast<double>(pre.w) * h.w;
  return to_float(round_bf16(sum));
}

/// The thread's values of bf16(sum of streams times pre), in single precision if that decides the rounding. Four products and three sums are
/// wrong by less than 2^-22 of the sum of magnitudes.
__device__ __forceinline__ Vector collapse_vector(const uint4 (&h)[kUsualStreams], const float4& pre) {
  constexpr float kError = 0x1p-21F;
  constexpr float kLeast = 0x1p-90F;  // below it products may have fewer digits
  const float factors[kUsualStreams] = {pre.x, pre.y, pre.z, pre.w};
  Vector sum{};
  Vector size{};
#pragma unroll
  for (int s = 0; s < kUsualStreams; ++s) {
    const Vector values = vector_of(h[s]);
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const float product = factors[s] * values.v[e];
      sum.v[e] += product;
      size.v[e] += fabsf(product);
    }
  }
  const auto bounds_of = [&](int e) { return bf16_pair(fmaf(size.v[e], -kError, sum.v[e]), fmaf(size.v[e], kError, sum.v[e])); };
  OpenRoundings open;
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    open.look(bounds_of(e), size.v[e]);
  }
  const bool has_digits = open.has_digits(kLeast);
  if (open.differs == 0 && has_digits) {  // one branch for all
    return rounded_bf16(sum);
  }
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const bool is_open = !has_digits || halves_differ(bounds_of(e)) != 0;
    sum.v[e] = is_open ? collapse_exactly(make_float4(vector_of(h[0]).v[e], vector_of(h[1]).v[e], vector_of(h[2]).v[e], vector_of(h[3]).v[e]), pre)
                       : rounded_bf16(sum.v[e]);
  }
  return sum;
}

/// The same with any number of streams.
__device__ __forceinline__ Vector collapse_streams(const CollapseNormParams& p, std::int64_t r, std::int32_t c) {
  double sums[kVector] = {};
  for (std::int32_t s = 0; s < p.streams; ++s) {
    const double pre = p.pre[r * p.streams + s];
    const Vector h = load_vector(row_at(p.h, r * p.streams + s, p.hidden) + c);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sums[i] += pre * h.v[i];
    }
  }
  Vector out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    out.v[i] = to_float(round_bf16(sums[i]));
  }
  return out;
}

/// What the thread's values of a row, joined, become. All threads of the block take part.
__device__ __forceinline__ void finish_row(const CollapseNormParams& p, std::int64_t r, Vector x, const uint4& weight, BlockSums<1>& sums) {
  const std::int32_t c = threadIdx.x * kVector;
  const bool inside = c < p.hidden;
  if (inside && p.x != nullptr) {
    store_vector(x, row_at(p.x, r, p.hidden) + c);
  }
  norm_vector(x, weight, p.hidden, p.norm_eps, inside, sums);
  if (inside) {
    store_vector(x, row_at(p.y, r, p.hidden) + c);
  }
  const VectorQ8 q8 = quantise_vector(x);
  if (inside && p.q8.codes != nullptr) {
    store_vector_q8(q8, c, row_at(p.q8.codes, r, p.hidden), row_at(p.q8.scales, r, p.hidden / kQ8Group));
  }
}

/// A block a row.
template <bool kIsUsual>
__global__ __launch_bounds__(kRowThreads, 1) void collapse_norm_vectors_kernel(CollapseNormParams p) {
  __shared__ BlockSums<1> sums;
  const std::int32_t c = threadIdx.x * kVector;
  const bool inside = c < p.hidden;
  const uint4 weight = inside ? *reinterpret_cast<const uint4*>(p.weight + c) : uint4{};
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  Vector x{};
  if (inside && kIsUsual) {
    uint4 h[kUsualStreams];
#pragma unroll
    for (int s = 0; s < kUsualStreams; ++s) {
      h[s] = *reinterpret_cast<const uint4*>(row_at(p.h, r * kUsualStreams + s, p.hidden) + c);
    }
    x = collapse_vector(h, reinterpret_cast<const float4*>(p.pre)[r]);
  } else if (inside) {
    x = collapse_streams(p, r, c);
  }
  finish_row(p, r, x, weight, sums);
}

constexpr int kStages = 4;  // rows of a block that are on their way or in use
constexpr int kUsualThreads = 640;  // of a row of the released model

/// A block a multiprocessor stays and takes row after row. A thread copies what it will read itself, so that no barrier stands between. Two
/// blocks would spill registers, which is slow where shared memory leaves the cache no room.
__global__ __launch_bounds__(kUsualThreads, 1) void collapse_norm_many_kernel(CollapseNormParams p) {
  extern __shared__ uint4 stages[];  // [stage][stream][thread]
  __shared__ BlockSums<1> sums;
  begin_in_turn();
  const auto step = static_cast<std::int32_t>(gridDim.x);
  const std::int32_t c = threadIdx.x * kVector;
  const bool inside = c < p.hidden;
  const uint4 weight = inside ? *reinterpret_cast<const uint4*>(p.weight + c) : uint4{};
  const auto place = [&](int stage, int s) { return stages + (stage * kUsualStreams + s) * blockDim.x + threadIdx.x; };
  const auto copy = [&](std::int32_t r, int stage) {
    if (r < p.num_rows && inside) {
#pragma unroll
      for (int s = 0; s < kUsualStreams; ++s) {
        __pipeline_memcpy_async(place(stage, s), row_at(p.h, std::int64_t{r} * kUsualStreams + s, p.hidden) + c, sizeof(uint4));
      }
    }
    __pipeline_commit();
  };
  const auto pre_of = [&](std::int32_t r) { return reinterpret_cast<const float4*>(p.pre)[min(r, p.num_rows - 1)]; };
  const auto first = static_cast<std::int32_t>(blockIdx.x);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    copy(first + i * step, i);
  }
  float4 pre = pre_of(first);
  int stage = 0;
  for (std::int32_t r = first; r < p.num_rows; r += step) {
    const float4 next_pre = pre_of(r + step);
    __pipeline_wait_prior(kStages - 1);
    uint4 h[kUsualStreams] = {};
    if (inside) {
#pragma unroll
      for (int s = 0; s < kUsualStreams; ++s) {
        h[s] = *place(stage, s);
      }
    }
    const Vector x = collapse_vector(h, pre);
    copy(r + kStages * step, stage);
    finish_row(p, r, x, weight, sums);
    pre = next_pre;
    stage = (stage + 1) % kStages;
  }
}

}  // namespace

void collapse_norm(const CollapseNormParams& p, cudaStream_t stream) {
  const int threads = vector_threads(p.hidden);
  const int most_blocks = num_multiprocessors();
  if (!fits_vectors(p.hidden)) {
    start(collapse_norm_kernel, {.grid = dim3(p.num_rows), .block = kRowThreads, .shared_bytes = p.hidden * sizeof(bf16)}, stream, p);
  } else if (p.streams != kUsualStreams) {
    start(collapse_norm_vectors_kernel<false>, {.grid = dim3(p.num_rows), .block = threads}, stream, p);
  } else if (p.num_rows <= most_blocks || threads > kUsualThreads) {
    start(collapse_norm_vectors_kernel<true>, {.grid = dim3(p.num_rows), .block = threads}, stream, p);
  } else {
    start(collapse_norm_many_kernel,
          {.grid = dim3(most_blocks),
           .block = threads,
           .shared_bytes = sizeof(uint4) * kStages * kUsualStreams * static_cast<std::size_t>(threads)},
          stream, p);
  }
}

}  // namespace deepinfer::cuda
