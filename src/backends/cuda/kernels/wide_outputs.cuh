// Outputs of attention_wide.cu: keys decoded to shared memory stage by stage, products of probabilities and keys, inverse rotation and Q8.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/wide_keys.cuh"
#include "backends/cuda/kernels/wide_shared.cuh"

namespace deepinfer::cuda::wide {

/// Sixteen neighbouring values of a key as stored.
struct StageCodes {
  uint4 codes;  // FP4: two words
  unsigned scale;
  bool is_window;
};

/// Decodes keys stage by stage, tile after tile: every thread 16 columns of one key.
template <int kBlocks>
struct Stage {
  using S = Share<kBlocks>;
  static constexpr std::int32_t kLanes = S::kColumns / 16;  ///< threads of a key
  static constexpr std::int32_t kPerTile = kTileKeys / S::kStageKeys;

  std::int32_t window;  ///< places
  std::int32_t first_column;

  __device__ __forceinline__ std::int32_t own_column() const { return static_cast<std::int32_t>(threadIdx.x) % kLanes * 16; }

  __device__ __forceinline__ StageCodes load(const Shared& shared, std::int32_t stage) const {
    const std::int32_t tile_place = shared.first_place[stage / kPerTile];
    const std::int32_t place = tile_place + stage % kPerTile * S::kStageKeys + static_cast<std::int32_t>(threadIdx.x) / kLanes;
    const std::uint8_t* record = shared.records[place];
    const std::int32_t column = first_column + own_column();
    StageCodes out{{0, 0, 0, 0}, 0, tile_place < window};
    if (record != nullptr && out.is_window) {
      out.codes = __ldg(reinterpret_cast<const uint4*>(record + column));
      out.scale = __ldg(record + kDim + column / kQ8Group);
    } else if (record != nullptr) {
      const uint2 codes = __ldg(reinterpret_cast<const uint2*>(record + column / 2));
      out.codes = {codes.x, codes.y, 0, 0};
      out.scale = __ldg(record + kDim / 2 + column / kQ4KvGroup);
    }
    return out;
  }

  /// NaN codes may come out as numbers: their probabilities are NaN already.
  __device__ __forceinline__ void store(const StageCodes& x, std::uint8_t* stage) const {
    const std::int32_t key = static_cast<std::int32_t>(threadIdx.x) / kLanes;
    const std::int32_t column = own_column();
    std::uint8_t* block = stage + column / 64 * S::kBlockBytes;
    const bool is_swapped = column / 64 % 2 != 0;  // halves in the other order, so that neighbouring threads meet other banks
    const unsigned scale = x.is_window ? fp8_scale(x.scale) : fp4_scale(x.scale);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_second = is_swapped != (i == 1);
      unsigned values[4];
      if (x.is_window) {
        decode_fp8(is_second ? x.codes.z : x.codes.x, is_second ? x.codes.w : x.codes.y, scale, values);
      } else {
        decode_fp4(is_second ? x.codes.y : x.codes.x, scale, values);
      }
      *reinterpret_cast<uint4*>(block + tile_offset(key, column % 64 / 8 + (is_second ? 1 : 0))) = {values[0], values[1], values[2],
                                                                                                    values[3]};
    }
  }
};

/// sums = P key over all keys for the columns of the block; sums of a group: [head][kGroupColumns] as products leave them.
template <int kBlocks>
__device__ __forceinline__ void sum_values(const AttendParams& p, Shared& shared, unsigned rank,
                                           float (&sums)[Share<kBlocks>::kGroupColumns / 2]) {
  using S = Share<kBlocks>;
  const Stage<kBlocks> stage = {places_of(p).window, static_cast<std::int32_t>(rank) * S::kColumns};
  const std::int32_t group = threadIdx.x / kGroupThreads;
  const std::int32_t count = shared.num_tiles * Stage<kBlocks>::kPerTile;
  const unsigned probabilities = shared_address(shared.tiles);
  StageCodes codes[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i < count) {
      codes[i] = stage.load(shared, i);
    }
  }
#pragma unroll 1
  for (std::int32_t first = 0; first < count; first += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t now = first + i;
      if (now >= count) {
        break;
      }
      stage.store(codes[i], shared.stages + i * kStageBytes);
      publish_tiles();
      wait_products<0>();
      __syncthreads();  // the stage is whole; products with the one before are done
      if (group < S::kSummingGroups) {
        const unsigned values =
            shared_address(shared.stages + i * kStageBytes) + static_cast<unsigned>(group * S::kGroupColumns / 64 * S::kBlockBytes);
        const std::int32_t first_key = now * S::kStageKeys;
        begin_products();
#pragma unroll
        for (std::int32_t key = 0; key < S::kStageKeys; key += 16) {
          multiply_tiles(sums, probabilities + static_cast<unsigned>((first_key + key) / kTileKeys * kTileBytes),
                         (first_key + key) % kTileKeys / 16, values + static_cast<unsigned>(key * kTileRowBytes), S::kBlockBytes);
        }
        end_products();
      }
      if (now + 2 < count) {
        codes[i] = stage.load(shared, now + 2);
      }
    }
  }
  wait_products<0>();
  take_sums(sums);
}

/// A lane's pair of an eight of columns, (t, t + 4), to neighbouring columns: lanes 0, 2, 1, 3 have 0, 2, 4, 6 and the next.
__device__ __forceinline__ unsigned neighbours(unsigned pair) {
  const unsigned other = __shfl_xor_sync(kWholeWarp, pair, 1);
  return threadIdx.x % 2 == 0 ? __byte_perm(pair, other, 0x5410) : __byte_perm(other, pair, 0x7632);
}

/// Divides and rounds the sums of a group's columns [first_column, first_column + kCount): to out[head][kStride].
template <int kCount, int kStride>
__device__ __forceinline__ void round_outputs(const Shared& shared, std::int32_t first_column, const float (&sums)[kCount / 2], bf16* out) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t t = lane % 4;
  const std::int32_t own = t == 0 || t == 3 ? t : 3 - t;  // pair of an eight behind neighbours()
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t head = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4 + half * 8;
    const float factor = kKeyUnit / shared.denominators[head];
#pragma unroll
    for (int j = 0; j < kCount / 8; ++j) {
      const float* x = sums + j * 4 + half * 2;
      const unsigned pair = neighbours(bf16_pair(x[0] * factor, x[1] * factor));
      *reinterpret_cast<unsigned*>(out + head * kStride + first_column + j * 8 + own * 2) = pair;
    }
  }
}

/// Q8 of a group that lies in four neighbouring lanes, eight values each.
__device__ __forceinline__ void store_q8_group(const bf16 (&x)[8], std::uint8_t* codes, std::uint8_t* scale_code) {
  static_assert(kQ8Group == 4 * 8);
  float amax = kQ8Floor;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    amax = fmaxf(amax, fabsf(to_float(x[i])));  // skips NaN
  }
  amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
  const std::uint8_t scale = power_of_two_scale(amax, kE4M3Max);
  const float inverse = 1.0F / ue8m0_to_float(scale);
  unsigned words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[i] = to_e4m3_pair(to_float(x[4 * i]) * inverse, to_float(x[4 * i + 1]) * inverse) |
               to_e4m3_pair(to_float(x[4 * i + 2]) * inverse, to_float(x[4 * i + 3]) * inverse) << 16;
  }
  *reinterpret_cast<uint2*>(codes) = {words[0], words[1]};
  if (threadIdx.x % 4 == 0) {
    *scale_code = scale;
  }
}

/// Inverse rotation and Q8 of the columns [first_column, first_column + kCount) of all heads of row r; in[head][kStride].
template <int kCount, int kStride>
__device__ __forceinline__ void finish_outputs(const AttendParams& p, std::int64_t r, std::int32_t first_column, const bf16* in) {
  constexpr std::int32_t kPieces = kCount / 8;  ///< of a head
  const std::int32_t first_turned = kDim - p.rope_dim;
#pragma unroll 1
  for (std::int32_t i = threadIdx.x; i < kHeads * kPieces; i += kThreads) {
    const std::int32_t column = first_column + i % kPieces * 8;
    const std::int64_t line = r * kHeads + i / kPieces;
    union {
      uint4 words;
      bf16 x[8];
    } piece{*reinterpret_cast<const uint4*>(in + i / kPieces * kStride + i % kPieces * 8)};
    if (column + 8 > first_turned) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const std::int32_t turned = column + 2 * pair - first_turned;
        if (turned >= 0) {
          const std::int64_t place = r * (p.rope_dim / 2) + turned / 2;
          rotate_pair(piece.x + 2 * pair, p.rope.cos[place], -p.rope.sin[place]);
        }
      }
    }
    if (p.o != nullptr) {
      *reinterpret_cast<uint4*>(row_at(p.o, line, kDim) + column) = piece.words;
    }
    if (p.q8.codes != nullptr) {
      store_q8_group(piece.x, row_at(p.q8.codes, line, kDim) + column, row_at(p.q8.scales, line, kDim / kQ8Group) + column / kQ8Group);
    }
  }
}

}  // namespace deepinfer::cuda::wide
