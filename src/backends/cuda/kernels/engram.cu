// Engram: collecting table rows and the gated addition to the streams (docs/spec/model.md 5.6.4).
#include <algorithm>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/row_vectors.cuh"
#include "backends/cuda/kernels/start.cuh"

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

constexpr int kGateThreads = 640;  // whole rows of the released model, eight neighbouring values a thread

/// One block a stream of a row.
__global__ void engram_gate_kernel(EngramGateParams p) {
  begin_in_turn();
  __shared__ double shared[3 * kRowWarps];
  const std::int64_t r = blockIdx.x;
  const std::int32_t s = blockIdx.y;
  if (p.is_image != nullptr && p.is_image[r] != 0) {
    return;
  }
  const bf16* keys = row_at(p.kv, r * (p.streams + 1), p.hidden);
  const bf16* key = row_at(keys, s, p.hidden);
  const bf16* value = row_at(keys, p.streams, p.hidden);
  bf16* h = row_at(p.h, r * p.streams + s, p.hidden);
  double sums[3] = {};  // weighted product, squares of h, squares of the key
  for (std::int32_t c = threadIdx.x * kVector; c < p.hidden; c += kGateThreads * kVector) {
    const Vector a = load_vector(h + c);
    const Vector b = load_vector(key + c);
    const Vector q = load_vector(row_at(p.q_weight, s, p.hidden) + c);
    const Vector k = load_vector(row_at(p.k_weight, s, p.hidden) + c);
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const double x = a.v[e];
      const double y = b.v[e];
      sums[0] += x * (static_cast<double>(q.v[e]) * k.v[e]) * y;
      sums[1] += x * x;
      sums[2] += y * y;
    }
  }
  block_sums(sums, shared);
  const double norms = sqrt(sums[1] / p.hidden + p.norm_eps) * sqrt(sums[2] / p.hidden + p.norm_eps);
  const double gate = gate_of(sums[0] / norms / sqrt(static_cast<double>(p.hidden)));
  for (std::int32_t c = threadIdx.x * kVector; c < p.hidden; c += kGateThreads * kVector) {
    Vector out = load_vector(h + c);
    const Vector v = load_vector(value + c);
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      out.v[e] = to_float(round_bf16(out.v[e] + gate * v.v[e]));
    }
    store_vector(out, h + c);
  }
}

}  // namespace

void engram_gather(const EngramGatherParams& p, cudaStream_t stream) {
  const std::int64_t pieces = static_cast<std::int64_t>(p.num_rows) * p.columns * (p.row_dim / kPieceCodes);
  const std::int64_t blocks = std::min(kMostGatherBlocks, (pieces + kGatherThreads - 1) / kGatherThreads);
  start(engram_gather_kernel, {.grid = dim3(static_cast<unsigned>(blocks)), .block = kGatherThreads}, stream, p);
}

void engram_gate(const EngramGateParams& p, cudaStream_t stream) {
  start(engram_gate_kernel, {.grid = dim3(p.num_rows, p.streams), .block = kGateThreads}, stream, p);
}

}  // namespace deepinfer::cuda
