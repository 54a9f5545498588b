// Engram: collecting table rows and the gated addition to the streams (docs/spec/model.md 5.6.4).
#include <algorithm>

#include "backends/cuda/kernels/block_sums.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/row_vectors.cuh"
#include "backends/cuda/kernels/start.cuh"
#include "base/check.h"

namespace deepinfer::cuda {
namespace {

constexpr double kGateFloor = 1e-6;
constexpr std::uint8_t kUnitScale = 127;  // 2^0

// Tables may lie in the host's memory: long reads, and enough of them at once for a bus of 64 GB/s, on few multiprocessors, because other
// kernels run meanwhile.
constexpr int kGatherThreads = 256;
constexpr std::int64_t kMostGatherBlocks = 32;
constexpr std::int32_t kPieceCodes = sizeof(uint4);  // that a thread moves at once; half of a group

/// Does not let the next kernel start before it ends: it would hold places that kernels of another stream can use.
__global__ void engram_gather_kernel(EngramGatherParams p) {
  wait_for_inputs();
  const std::int32_t row_pieces = p.row_dim / kPieceCodes;
  const std::int32_t scales = p.row_dim / kQ8Group;
  const std::int64_t num_pieces = static_cast<std::int64_t>(p.num_rows) * p.columns * row_pieces;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kGatherThreads + threadIdx.x; i < num_pieces;
       i += static_cast<std::int64_t>(gridDim.x) * kGatherThreads) {
    const std::int64_t lookup = i / row_pieces;
    const auto piece = static_cast<std::int32_t>(i % row_pieces);
    const bool has_scale = piece % 2 == 0;
    const std::int64_t id = p.row_id[lookup];
    uint4 codes{};
    std::uint8_t scale = kUnitScale;
    if (id >= 0) {
      codes = reinterpret_cast<const uint4*>(row_at(p.codes, id, p.row_dim))[piece];
      if (has_scale) {
        scale = row_at(p.scales, id, scales)[piece / 2];
      }
    }
    reinterpret_cast<uint4*>(row_at(p.e.codes, lookup, p.row_dim))[piece] = codes;
    if (has_scale) {
      row_at(p.e.scales, lookup, scales)[piece / 2] = scale;
    }
  }
}

/// sigmoid(copysign(sqrt(max(|dot|, floor)), dot)); NaN stays NaN.
__device__ double gate_of(double dot) {
  const double magnitude = fabs(dot) < kGateFloor ? kGateFloor : fabs(dot);
  return 1.0 / (1.0 + exp(-copysign(sqrt(magnitude), dot)));
}

constexpr int kGateBlocks = 2;  // that stay on a multiprocessor
constexpr int kUsualGateThreads = 640;

/// Blocks stay and add to the same stream of row after row, eight neighbouring values a thread; products of the weights lie in shared memory.
template <int kMostThreads>
__global__ __launch_bounds__(kMostThreads, kMostThreads == kUsualGateThreads ? kGateBlocks : 1) void engram_gate_kernel(EngramGateParams p) {
  extern __shared__ double2 weights[];  // [kVector / 2][thread]
  __shared__ BlockSums<3> shared;
  const std::int32_t s = blockIdx.y;
  const std::int32_t c = threadIdx.x * kVector;
  const bool inside = c < p.hidden;
  if (inside) {
    const Vector q = load_vector(row_at(p.q_weight, s, p.hidden) + c);
    const Vector k = load_vector(row_at(p.k_weight, s, p.hidden) + c);
#pragma unroll
    for (int e = 0; e < kVector; e += 2) {
      weights[e / 2 * blockDim.x + threadIdx.x] = {static_cast<double>(q.v[e]) * k.v[e], static_cast<double>(q.v[e + 1]) * k.v[e + 1]};
    }
  }
  begin_in_turn();
  uint4 h{};
  uint4 key{};
  uint4 value{};
  const auto load = [&](std::int32_t r) {
    if (r < p.num_rows && inside) {
      const bf16* keys = row_at(p.kv, std::int64_t{r} * (p.streams + 1), p.hidden) + c;
      h = *reinterpret_cast<const uint4*>(row_at(p.h, std::int64_t{r} * p.streams + s, p.hidden) + c);
      key = *reinterpret_cast<const uint4*>(row_at(keys, s, p.hidden));
      value = *reinterpret_cast<const uint4*>(row_at(keys, p.streams, p.hidden));
    }
  };
  load(static_cast<std::int32_t>(blockIdx.x));
  for (auto r = static_cast<std::int32_t>(blockIdx.x); r < p.num_rows; r += static_cast<std::int32_t>(gridDim.x)) {
    const Vector own = vector_of(h);
    const Vector of_key = vector_of(key);
    const uint4 of_value = value;
    load(r + static_cast<std::int32_t>(gridDim.x));
    double sums[3] = {};  // weighted product, squares of h, squares of the key; all products are exact
    if (inside) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const double2 two = weights[e / 2 * blockDim.x + threadIdx.x];
        const double x = own.v[e];
        const double y = of_key.v[e];
        sums[0] = fma(x * (e % 2 == 0 ? two.x : two.y), y, sums[0]);
        sums[1] = fma(x, x, sums[1]);
        sums[2] = fma(y, y, sums[2]);
      }
    }
    const double gate = of_block_sums(sums, shared, [&](const double(&all)[3]) {
      const double norms = sqrt(all[1] / p.hidden + p.norm_eps) * sqrt(all[2] / p.hidden + p.norm_eps);
      return gate_of(all[0] / norms / sqrt(static_cast<double>(p.hidden)));
    });
    if (inside && (p.is_image == nullptr || p.is_image[r] == 0)) {
      Vector out = own;
      const Vector v = vector_of(of_value);
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        out.v[e] = to_float(round_bf16(out.v[e] + gate * v.v[e]));
      }
      store_vector(out, row_at(p.h, std::int64_t{r} * p.streams + s, p.hidden) + c);
    }
  }
}

}  // namespace

void engram_gather(const EngramGatherParams& p, cudaStream_t stream) {
  const std::int64_t pieces = static_cast<std::int64_t>(p.num_rows) * p.columns * (p.row_dim / kPieceCodes);
  const std::int64_t blocks = std::min(kMostGatherBlocks, (pieces + kGatherThreads - 1) / kGatherThreads);
  start(engram_gather_kernel, {.grid = dim3(static_cast<unsigned>(blocks)), .block = kGatherThreads}, stream, p);
}

void engram_gate(const EngramGateParams& p, cudaStream_t stream) {
  check(fits_vectors(p.hidden), "a row of a stream fits a block");
  const int threads = vector_threads(p.hidden);
  const bool is_usual = threads <= kUsualGateThreads;
  const int most = std::max(1, (is_usual ? kGateBlocks : 1) * num_multiprocessors() / p.streams);
  start(is_usual ? engram_gate_kernel<kUsualGateThreads> : engram_gate_kernel<kRowThreads>,
        {.grid = dim3(std::min(p.num_rows, most), p.streams),
         .block = threads,
         .shared_bytes = static_cast<std::size_t>(threads) * kVector * sizeof(double)},
        stream, p);
}

}  // namespace deepinfer::cuda
