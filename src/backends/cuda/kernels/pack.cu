// What products read, in their order. Activations: Q8 codes become bf16 values, which is exact. FP4 weights: the bits of eight codes.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/packed_order.cuh"
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
  wait_for_inputs();
  let_next_start();  // not earlier: the products behind it read the tiles before they wait
  const int lane = threadIdx.x % 32;
  const int t = lane % 4;
  const int unit = blockIdx.x * (kBlockThreads / 32) + threadIdx.x / 32;
  if (unit >= p.k / 32) {
    return;
  }
  int tile = blockIdx.y * 8 / p.columns.columns;
  int columns = p.columns.columns;
  std::int64_t place = static_cast<std::int64_t>(tile) * columns;  // first of the tile
  if (p.tile_of != nullptr) {
    if (static_cast<int>(blockIdx.y) * 8 / kWideStep >= *p.num_steps) {
      return;
    }
    tile = p.tile_of[blockIdx.y * 8 / kWideStep];
    place = p.tiles[tile].w;
    columns = wide_columns(p.tiles[tile].z);
  }
  const int within = static_cast<int>(blockIdx.y * 8 - place) + lane / 4;
  std::int32_t column = static_cast<std::int32_t>(place) + within;
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
  const int k = unit / (codes / 8) * 4 * codes + t * codes + unit % (codes / 8) * 8;
  std::uint16_t values[8];
  source.load((row * p.groups + blockIdx.z) * p.k + k, values);
  store_packed(p.kind, values, k, within, columns, p.out + (blockIdx.z * p.columns.places + place) * p.k);
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

/// Codes i and i + 4 are the pair i, one in each half of the word. The bits of three pairs lie as in a bf16 with the code at its top
/// (sign 15, magnitude 8 to 6), 0, 3 and 6 places lower; those of the last one are in the places that are left.
__device__ __forceinline__ unsigned order_fp4(unsigned codes) {
  unsigned out = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned bits = 0;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned code = codes >> (half * 16 + pair * 4);
      const unsigned sign = code >> 3 & 1U;
      const unsigned magnitude = code & 7U;
      bits |= pair < 3 ? (sign << 15 | magnitude << 6) >> (3 * pair) : sign << 11 | (magnitude & 3U) << 13 | magnitude >> 2 << 10;
    }
    out |= bits << (16 * half);
  }
  return out;
}

/// A thread a piece of 16 bytes, in the order of the result.
template <WeightFormat format>
__global__ void place_kernel(const uint4* from, uint4* to, std::int64_t pieces, int row_bytes, bool in_units) {
  begin_in_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i >= pieces) {
    return;
  }
  std::int64_t source = i;
  if (in_units) {
    constexpr int kRowPieces = kUnitRowBytes / 16;
    const std::int64_t of_rows = std::int64_t{kUnitRows / 16} * row_bytes;  // pieces of the units of the same rows
    const std::int64_t first_row = i / of_rows * kUnitRows;
    const int within = static_cast<int>(i % of_rows);
    const int row = within / kRowPieces % kUnitRows;
    source = (first_row + row) * (row_bytes / 16) + within / (kUnitRows * kRowPieces) * kRowPieces + within % kRowPieces;
  }
  uint4 words = from[source];
  if constexpr (format == WeightFormat::fp4) {
    words = {order_fp4(words.x), order_fp4(words.y), order_fp4(words.z), order_fp4(words.w)};
  }
  to[i] = words;
}

/// A thread a word of four scales, in the order of the result.
__global__ void place_scales_kernel(const unsigned* from, unsigned* to, std::int64_t count, int words) {
  begin_in_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i < count) {
    const std::int64_t unit = i / kUnitRows;
    to[i] = from[(unit / words * kUnitRows + i % kUnitRows) * words + unit % words];
  }
}

template <class Source>
void pack(const PackParams& p, Source source, cudaStream_t stream) {
  constexpr int kWarps = kBlockThreads / 32;
  const auto columns_of_all =
      static_cast<unsigned>(p.tile_of != nullptr ? p.columns.places : static_cast<std::int64_t>(p.columns.count) * p.columns.columns);
  const dim3 grid((p.k / 32 + kWarps - 1) / kWarps, columns_of_all / 8, p.groups);
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

void place_codes(const PlaceCodes& p, cudaStream_t stream) {
  const int row_bytes = p.format == WeightFormat::fp8 ? p.k : p.k / 2;
  const std::int64_t pieces = p.rows * row_bytes / 16;
  start(p.format == WeightFormat::fp8 ? place_kernel<WeightFormat::fp8> : place_kernel<WeightFormat::fp4>,
        {.grid = dim3(static_cast<unsigned>((pieces + kBlockThreads - 1) / kBlockThreads)), .block = kBlockThreads}, stream,
        reinterpret_cast<const uint4*>(p.from), reinterpret_cast<uint4*>(p.to), pieces, row_bytes, p.in_units);
}

void place_scales(std::int64_t rows, std::int32_t words, const std::uint8_t* from, std::uint8_t* to, cudaStream_t stream) {
  const std::int64_t count = rows * words;
  start(place_scales_kernel, {.grid = dim3(static_cast<unsigned>((count + kBlockThreads - 1) / kBlockThreads)), .block = kBlockThreads}, stream,
        reinterpret_cast<const unsigned*>(from), reinterpret_cast<unsigned*>(to), count, words);
}

}  // namespace deepinfer::cuda
