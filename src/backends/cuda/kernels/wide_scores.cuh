// Scores of attention_wide.cu: queries and the places of keys to shared memory, products of decoded keys and queries.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/wide_keys.cuh"
#include "backends/cuda/kernels/wide_shared.cuh"

namespace deepinfer::cuda::wide {

/// Barrier of one warpgroup; only one group may use it in a kernel.
__device__ __forceinline__ void group_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads) : "memory"); }

/// One group: the queries to shared memory. Of 128 neighbouring columns lane t of a product takes [32 t, 32 t + 32), eight for two
/// products, in the order of wide_keys.cuh.
__device__ inline void load_queries(const bf16* q, std::uint8_t* tiles) {
  const std::int32_t thread = threadIdx.x % kGroupThreads;
  const std::int32_t t = thread % 4;
  constexpr std::int32_t kPieces = kHeads * kDim / 8;
#pragma unroll 8
  for (std::int32_t i = thread; i < kPieces; i += kGroupThreads) {
    const std::int32_t step = i / 32 % 16;  // 8 columns of every lane
    const std::int32_t head = i / 512 * 8 + i / 4 % 8;
    const uint4 x = __ldg(reinterpret_cast<const uint4*>(q + head * kDim + step / 4 * 128 + t * 32 + step % 4 * 8));
    const unsigned pairs[4] = {__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632), __byte_perm(x.y, x.w, 0x5410),
                               __byte_perm(x.y, x.w, 0x7632)};
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      *reinterpret_cast<unsigned*>(tiles + step / 2 * kTileBytes + tile_offset(head, step % 2 * 4 + pair) + t * 4) = pairs[pair];
    }
  }
}

/// The other group: where the keys are, and which tiles hold any. Every load of a thread is issued before the first that depends on one.
__device__ inline void find_keys(const AttendParams& p, std::int64_t r, Shared& shared) {
  constexpr int kMost = (kMaxPlaces + kGroupThreads - 1) / kGroupThreads;
  const Places places = places_of(p);
  const KeyTable table(p, r);
  const std::int32_t thread = threadIdx.x % kGroupThreads;
  const std::int32_t lane = threadIdx.x % 32;
  std::int32_t row[kMost];
  std::int32_t block[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    row[i] = table.listed_row(thread + i * kGroupThreads - places.window);
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    block[i] = table.block_of(p, row[i]);
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const std::int32_t place = thread + i * kGroupThreads;
    if (place < places.all) {  // for whole warps: places are multiples of 64
      const std::uint8_t* record = place < places.window ? table.window_record(p, place) : table.compressed_record(p, row[i], block[i]);
      shared.records[place] = record;
      const unsigned taken = __ballot_sync(kWholeWarp, record != nullptr);
      if (lane == 0) {
        shared.taken[place / 32] = taken != 0 ? 1 : 0;
      }
    }
  }
  group_barrier();
  if (thread < 32) {
    const bool is_taken = lane < places.all / kTileKeys && (shared.taken[2 * lane] | shared.taken[2 * lane + 1]) != 0;
    const unsigned tiles = __ballot_sync(kWholeWarp, is_taken);
    if (is_taken) {
      shared.first_place[__popc(tiles & ((1U << lane) - 1U))] = lane * kTileKeys;
    }
    if (lane == 0) {
      shared.num_tiles = __popc(tiles);
    }
  }
}

// --- products -----------------------------------------------------------------------------------------------------

/// Sixteen bytes of two records and what scales them.
struct Codes {
  uint4 row[2];
  unsigned scale[2];
};

__device__ __forceinline__ unsigned word_of(const uint4& x, int i) { return i < 2 ? (i == 0 ? x.x : x.y) : (i == 2 ? x.z : x.w); }

/// FP4: the lane's 32 values of 128 columns, two scales. 4 pieces.
struct Fp4Pieces {
  static constexpr std::int32_t kPieces = 4;
  static constexpr std::int32_t kSteps = 4;  ///< of 8 values

  static __device__ __forceinline__ Codes load(const std::uint8_t* const (&record)[2], std::int32_t piece, std::int32_t t) {
    Codes out{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (record[i] != nullptr) {
        out.row[i] = __ldg(reinterpret_cast<const uint4*>(record[i] + piece * 64 + t * 16));
        out.scale[i] = __ldg(reinterpret_cast<const unsigned short*>(record[i] + kDim / 2 + piece * 8 + t * 2));
      }
    }
    return out;
  }
  static __device__ __forceinline__ void decode(const Codes& x, int i, int step, unsigned (&out)[4]) {
    decode_fp4(word_of(x.row[i], step), fp4_scale(x.scale[i] >> step / 2 * 8 & 0xFFU), out);
  }
};

/// FP8: half of the lane's 32 values of 128 columns. 8 pieces.
struct Fp8Pieces {
  static constexpr std::int32_t kPieces = 8;
  static constexpr std::int32_t kSteps = 2;

  static __device__ __forceinline__ Codes load(const std::uint8_t* const (&record)[2], std::int32_t piece, std::int32_t t) {
    Codes out{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (record[i] != nullptr) {
        out.row[i] = __ldg(reinterpret_cast<const uint4*>(record[i] + piece / 2 * 128 + t * 32 + piece % 2 * 16));
        out.scale[i] = __ldg(record[i] + kDim + piece / 2 * 4 + t);
      }
    }
    return out;
  }
  static __device__ __forceinline__ void decode(const Codes& x, int i, int step, unsigned (&out)[4]) {
    const unsigned nan = nan_marks(x.row[i].x) | nan_marks(x.row[i].y) | nan_marks(x.row[i].z) | nan_marks(x.row[i].w);
    decode_fp8(word_of(x.row[i], 2 * step), word_of(x.row[i], 2 * step + 1), nan != 0 ? kNanPair : fp8_scale(x.scale[i]), out);
  }
};

/// sums = keys q for the two keys of a lane; `queries`: shared address. kAhead: pieces in flight.
template <class Format, int kAhead>
__device__ __forceinline__ void multiply_keys(const std::uint8_t* const (&record)[2], unsigned queries, float (&sums)[32]) {
  static_assert(Format::kPieces % kAhead == 0);
  const std::int32_t t = threadIdx.x % 4;
  unsigned a[2][2][4];  // two batches of two products, in turn
  Codes codes[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    codes[i] = Format::load(record, i, t);
  }
#pragma unroll 1
  for (std::int32_t first_piece = 0; first_piece < Format::kPieces; first_piece += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int step = 0; step < Format::kSteps; ++step) {
        wait_products<1>();
        unsigned upper[4];
        unsigned lower[4];
        Format::decode(codes[i], 0, step, upper);
        Format::decode(codes[i], 1, step, lower);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          a[step % 2][half][0] = upper[2 * half];
          a[step % 2][half][1] = lower[2 * half];
          a[step % 2][half][2] = upper[2 * half + 1];
          a[step % 2][half][3] = lower[2 * half + 1];
        }
        const std::int32_t first = ((first_piece + i) * Format::kSteps + step) * 2;  // product
        const unsigned tile = queries + static_cast<unsigned>(first / 4 * kTileBytes);
        begin_products();
        multiply_by_rows(sums, a[step % 2][0], tile, first % 4);
        multiply_by_rows(sums, a[step % 2][1], tile, first % 4 + 1);
        end_products();
      }
      if (first_piece + i + kAhead < Format::kPieces) {
        codes[i] = Format::load(record, first_piece + i + kAhead, t);
      }
    }
  }
  wait_products<0>();
  take_sums(sums);
}

/// x[2 j + i]: of the heads 8 j + 2 t + i, t = lane % 4. Joins the values of all lanes with the same t; a lane keeps those of the heads
/// 8 (lane / 4) + 2 t + {0, 1} in x[0] and x[1]. Each step halves what a lane holds.
template <int kKept = 8, class Join>
__device__ __forceinline__ void join_lanes(float (&x)[16], const Join& join) {
  const bool is_upper = (threadIdx.x & 2U * kKept) != 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const float lower = x[i];
    const float upper = x[i + kKept];
    x[i] = join(is_upper ? upper : lower, __shfl_xor_sync(kWholeWarp, is_upper ? lower : upper, 2 * kKept));
  }
  if constexpr (kKept > 2) {
    join_lanes<kKept / 2>(x, join);
  }
}

/// Products of a tile's keys with all heads, -infinity for empty places, and their peaks into those of the warp.
/// scores[4 j + i]: key 16 warp + lane / 4 + i / 2 * 8, head 8 j + lane % 4 * 2 + i % 2.
template <int kAhead>
__device__ __forceinline__ void score_tile(const AttendParams& p, Shared& shared, std::int32_t first_place, float (&scores)[32]) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const std::int32_t key = first_place + warp % kTileParts * 16 + lane / 4;
  const std::uint8_t* const record[2] = {shared.records[key], shared.records[key + 8]};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    scores[i] = 0;
  }
  const unsigned queries = shared_address(shared.tiles);
  if (first_place < places_of(p).window) {
    multiply_keys<Fp8Pieces, kAhead>(record, queries, scores);
  } else {
    multiply_keys<Fp4Pieces, kAhead>(record, queries, scores);
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    scores[i] = record[i / 2 % 2] == nullptr ? -INFINITY : scores[i];
  }
  float peaks[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    peaks[i] = fmaxf(scores[i / 2 * 4 + i % 2], scores[i / 2 * 4 + i % 2 + 2]);
  }
  join_lanes(peaks, [](float x, float y) { return fmaxf(x, y); });
  float2& own = *reinterpret_cast<float2*>(shared.warp_peaks[warp] + lane * 2);
  own = {fmaxf(own.x, peaks[0]), fmaxf(own.y, peaks[1])};
}

}  // namespace deepinfer::cuda::wide
