// Input of a sub-layer: streams joined, norm, quantisation (docs/spec/model.md 5.1-5.3).
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
  unsigned open = 0;  // one branch for all
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const unsigned bounds = bf16_pair(fmaf(size.v[e], -kError, sum.v[e]), fmaf(size.v[e], kError, sum.v[e]));
    sum.v[e] = __uint_as_float(bounds << 16);
    open |= bounds >> 16 == (bounds & 0xFFFFU) && size.v[e] > kLeast && size.v[e] < INFINITY ? 0U : 1U << e;
  }
  if (open != 0) {
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      if ((open >> e & 1U) != 0) {
        sum.v[e] = collapse_exactly(
            make_float4(vector_of(h[0]).v[e], vector_of(h[1]).v[e], vector_of(h[2]).v[e], vector_of(h[3]).v[e]), pre);
      }
    }
  }
  return sum;
}

/// The same with any number of streams, in double precision.
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

/// A block a row. Quick: takes four streams in single precision, which is shorter for one row; but its registers leave room for one block of the
/// released model's width on a multiprocessor, those of double precision for two.
template <bool kIsQuick>
__global__ void collapse_norm_vectors_kernel(CollapseNormParams p) {
  __shared__ BlockSums<1> sums;
  const std::int32_t c = threadIdx.x * kVector;
  const bool inside = c < p.hidden;
  const uint4 weight = inside ? *reinterpret_cast<const uint4*>(p.weight + c) : uint4{};
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  Vector x{};
  if (inside && kIsQuick) {
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

}  // namespace

void collapse_norm(const CollapseNormParams& p, cudaStream_t stream) {
  if (!fits_vectors(p.hidden)) {
    start(collapse_norm_kernel, {.grid = dim3(p.num_rows), .block = kRowThreads, .shared_bytes = p.hidden * sizeof(bf16)}, stream, p);
  } else {
    const bool is_quick = p.streams == kUsualStreams && p.num_rows <= num_multiprocessors();
    start(is_quick ? collapse_norm_vectors_kernel<true> : collapse_norm_vectors_kernel<false>,
          {.grid = dim3(p.num_rows), .block = vector_threads(p.hidden)}, stream, p);
  }
}

}  // namespace deepinfer::cuda
