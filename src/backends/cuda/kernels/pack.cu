// Activations in the order in which products read them: Q8 codes become bf16 values, which is exact.
// A packed tile is [k / 8][columns][8]: what an instruction of 16 values takes are two neighbouring pieces of 8 values of a column.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

/// Eight neighbouring values of a row as bf16 bits.
struct Q8Source {
  Q8Rows rows;
  __device__ __forceinline__ void load(std::int64_t i, std::uint16_t (&out)[8]) const {
    const uint2 codes = *reinterpret_cast<const uint2*>(rows.codes + i);
    const float scale = ue8m0_to_float(rows.scales[i / kQ8Group]);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const std::uint8_t code = static_cast<std::uint8_t>((e < 4 ? codes.x : codes.y) >> (e % 4 * 8));
      out[e] = to_bf16(e4m3_to_float(code) * scale).bits;
    }
  }
};

struct Bf16Source {
  const bf16* rows;
  __device__ __forceinline__ void load(std::int64_t i, std::uint16_t (&out)[8]) const {
    const uint4 v = *reinterpret_cast<const uint4*>(rows + i);
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      out[e] = static_cast<std::uint16_t>(words[e / 2] >> (e % 2 * 16));
    }
  }
};

/// A warp packs a unit (8 values of each of the 4 lanes of a step) of 8 columns: it writes 4 pieces of 8 columns, 128 bytes each.
template <class Source>
__global__ void pack_kernel(PackParams p, Source source) {
  begin_in_turn();
  const int lane = threadIdx.x % 32;
  const int t = lane % 4;
  const int unit = blockIdx.x * (kBlockThreads / 32) + threadIdx.x / 32;
  if (unit >= p.k / 32) {
    return;
  }
  const int tile = blockIdx.y * 8 / p.columns.columns;
  const int within = blockIdx.y * 8 % p.columns.columns + lane / 4;
  std::int32_t column = tile * p.columns.columns + within;
  if (p.tiles != nullptr) {
    if (tile >= *p.num_tiles || within >= p.tiles[tile].z) {
      return;
    }
    column = p.tiles[tile].y + within;
  } else if (column >= p.num_columns) {
    return;
  }
  const std::int64_t row = p.x_row != nullptr ? p.x_row[column] : column;
  const int codes = codes_of(p.kind, 16);
  const int step = unit / (codes / 8);
  const int u = unit % (codes / 8);
  std::uint16_t values[8];
  source.load((row * p.groups + blockIdx.z) * p.k + step * 4 * codes + t * codes + u * 8, values);
  bf16* out = p.out + (static_cast<std::int64_t>(blockIdx.z) * p.columns.count + tile) * p.columns.columns * p.k;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    // Values of a pair, as the codes of weights come out of their words; see Codes::unpack().
    const int first = p.kind == WeightKind::fp8 ? (pair & 2) * 2 + (pair & 1) : p.kind == WeightKind::fp4 ? pair : 2 * pair;
    const int second = first + (p.kind == WeightKind::fp8 ? 2 : p.kind == WeightKind::fp4 ? 4 : 1);
    const unsigned word = values[0];
    unsigned low = word;
    unsigned high = word;
#pragma unroll
    for (int e = 0; e < 8; ++e) {  // constant indices keep the values in registers
      low = e == first ? values[e] : low;
      high = e == second ? values[e] : high;
    }
    *reinterpret_cast<unsigned*>(out + (static_cast<std::int64_t>(unit * 4 + pair) * p.columns.columns + within) * 8 + 2 * t) = low | high << 16;
  }
}

/// One thread a value of unpacked Q8 rows.
__global__ void order_q8_kernel(Q8Rows q8, std::int64_t count, std::int32_t width, WeightKind kind, int codes, bf16* out) {
  begin_in_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const std::int32_t k = static_cast<std::int32_t>(i % width);
  const float value = e4m3_to_float(q8.codes[i]) * ue8m0_to_float(q8.scales[i / kQ8Group]);
  out[i - k + x_place(kind, codes, k)] = to_bf16(value);
}

template <class Source>
void pack(const PackParams& p, Source source, cudaStream_t stream) {
  constexpr int kWarps = kBlockThreads / 32;
  const dim3 grid((p.k / 32 + kWarps - 1) / kWarps, p.columns.count * p.columns.columns / 8, p.groups);
  start(pack_kernel<Source>, {.grid = grid, .block = kBlockThreads}, stream, p, source);
}

}  // namespace

void pack_q8(const PackParams& p, const Q8Rows& x, cudaStream_t stream) {
  if (p.columns.is_packed) {
    pack(p, Q8Source{x}, stream);
    return;
  }
  const std::int64_t count = static_cast<std::int64_t>(p.num_columns) * p.groups * p.k;
  start(order_q8_kernel, {.grid = dim3((count + kBlockThreads - 1) / kBlockThreads), .block = kBlockThreads}, stream, x, count, p.k, p.kind,
        codes_of(p.kind, vector_bytes(p.kind, p.k)), p.out);
}

void pack_bf16(const PackParams& p, const bf16* x, cudaStream_t stream) { pack(p, Bf16Source{x}, stream); }

}  // namespace deepinfer::cuda
