// What products read, in their order. Activations: Q8 codes become bf16 values, which is exact. Weights: the bits of the codes of a word.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/packed_order.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kLanePieces = 4;                    // of eight values, that a lane packs
constexpr int kWarpValues = 4 * kLanePieces * 8;  // of each of eight columns, that a warp packs; divides k

/// Place of piece i of lane t among the values of the warp.
template <WeightKind kind>
__device__ __forceinline__ constexpr int piece_of(int i, int t) {
  constexpr int codes = codes_of(kind, 16);
  return i / (codes / 8) * (4 * codes) + t * codes + i % (codes / 8) * 8;
}

/// What a lane packs: four pieces of a row, 16 codes or 8 values of bf16 at a time.
struct Q8Source {
  Q8Rows rows;
  template <WeightKind kind>
  __device__ __forceinline__ void load(std::int64_t first, int t, uint4 (&out)[kLanePieces]) const {
    uint4 codes[kLanePieces / 2];
    float scale[kLanePieces / 2];
#pragma unroll
    for (int i = 0; i < kLanePieces / 2; ++i) {
      const std::int64_t place = first + piece_of<kind>(2 * i, t);
      codes[i] = *reinterpret_cast<const uint4*>(rows.codes + place);
      scale[i] = ue8m0_to_float(rows.scales[place / kQ8Group]);
    }
#pragma unroll
    for (int i = 0; i < kLanePieces; ++i) {
      const uint4& c = codes[i / 2];
      const unsigned words[2] = {i % 2 == 0 ? c.x : c.z, i % 2 == 0 ? c.y : c.w};
      float values[8];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const float2 two = e4m3_pair(words[pair / 2] >> (pair % 2 * 16));
        values[2 * pair] = two.x * scale[i / 2];
        values[2 * pair + 1] = two.y * scale[i / 2];
      }
      out[i] = pair_up<kind>(values);
    }
  }
};

struct Bf16Source {
  const bf16* rows;
  template <WeightKind kind>
  __device__ __forceinline__ void load(std::int64_t first, int t, uint4 (&out)[kLanePieces]) const {
    static_assert(kind == WeightKind::bf16);
#pragma unroll
    for (int i = 0; i < kLanePieces; ++i) {
      out[i] = *reinterpret_cast<const uint4*>(rows + first + piece_of<kind>(i, t));
    }
  }
};

/// A warp packs kWarpValues of eight columns at a time: pieces of 128 bytes, eight columns each.
template <WeightKind kind, class Source>
__global__ void pack_kernel(PackParams p, Source source) {
  if (p.tiles == nullptr) {
    let_next_start();
  }
  wait_for_inputs();
  let_next_start();  // not earlier where there are tiles: the products behind it read those before they wait
  const int t = threadIdx.x % 4;
  PackedColumn c;
  if (!find_column(p, blockIdx.y, threadIdx.x % 32 / 4, c)) {
    return;
  }
  const std::int64_t row = p.x_row != nullptr ? p.x_row[c.column] : c.column;
  const std::int64_t values = (row * p.groups + blockIdx.z) * p.k;
  bf16* const out = p.out + (blockIdx.z * p.columns.places + c.first) * p.k;
#pragma unroll 2
  for (int first = static_cast<int>(blockIdx.x * kPackWarps + threadIdx.x / 32) * kWarpValues; first < p.k;
       first += static_cast<int>(gridDim.x) * kPackWarps * kWarpValues) {
    uint4 pairs[kLanePieces];
    source.template load<kind>(values + first, t, pairs);
#pragma unroll
    for (int i = 0; i < kLanePieces; ++i) {
      store_packed<kind>(pairs[i], first + piece_of<kind>(i, t), c.within, c.columns, out);
    }
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

/// Codes 0 and 2 lie as in a bf16 (sign 15, the others 10 to 4), one in each half of the word, codes 1 and 3 in the places that are left:
/// sign 11, exponent but its last bit 14 to 12, that and the mantissa 3 to 0.
__device__ __forceinline__ unsigned order_fp8(unsigned codes) {
  const unsigned even = codes & 0x00FF00FFU;
  const unsigned odd = codes >> 8 & 0x00FF00FFU;
  return (even & 0x00800080U) << 8 | (even & 0x007F007FU) << 4 | (odd & 0x00800080U) << 4 | (odd & 0x00700070U) << 8 | (odd & 0x000F000FU);
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
  if constexpr (format == WeightFormat::fp8) {
    words = {order_fp8(words.x), order_fp8(words.y), order_fp8(words.z), order_fp8(words.w)};
  } else {
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

template <WeightKind kind, class Source>
void pack(const PackParams& p, Source source, cudaStream_t stream) {
  const std::int64_t eights = packing_eights(p);
  start(pack_kernel<kind, Source>,
        {.grid = dim3(packing_parts(p.k, kWarpValues, eights * p.groups), static_cast<unsigned>(eights), p.groups), .block = kBlockThreads}, stream,
        p, source);
}

}  // namespace

void pack_q8(const PackParams& p, const Q8Rows& x, cudaStream_t stream) {
  if (p.columns.is_packed) {
    (p.kind == WeightKind::fp8 ? pack<WeightKind::fp8, Q8Source> : pack<WeightKind::fp4, Q8Source>)(p, Q8Source{x}, stream);
    return;
  }
  const std::int64_t count = static_cast<std::int64_t>(p.num_columns) * p.groups * p.k;
  start(order_q8_kernel, {.grid = dim3((count + kBlockThreads - 1) / kBlockThreads), .block = kBlockThreads}, stream, x, count, p.k, p.kind,
        codes_of(p.kind, vector_bytes(p.kind, p.k)), p.out);
}

void pack_bf16(const PackParams& p, const bf16* x, cudaStream_t stream) { pack<WeightKind::bf16>(p, Bf16Source{x}, stream); }

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
