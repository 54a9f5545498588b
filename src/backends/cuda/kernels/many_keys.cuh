// The warpgroups of attention_many.cu that decode keys to shared memory, tiles in turn. All that a thread needs stays in registers: what is
// loaded next is asked for before what came last is decoded, a key at a time.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/many_shared.cuh"

namespace deepinfer::cuda::wide {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Lane t = lane % 4 of two keys of a tile, 8 apart; neighbours in a half warp are two keys apart, so that their stores meet other banks.
__device__ __forceinline__ std::int32_t own_key() {
  return static_cast<std::int32_t>(threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x / 4 % 4 * 2 + threadIdx.x / 16 % 2);
}
/// Which of two tiles the warpgroup decodes, and where.
__device__ __forceinline__ unsigned own_place() { return threadIdx.x / kGroupThreads % 2; }

/// What a thread loads at once: its part of a key in FP4, of half a key in FP8. Of 128 columns, a chunk, lane t of a key has
/// [32 t, 32 t + 32); it has the scales of chunk t for all four lanes.
struct KeyPiece {
  uint4 words[4];
  uint2 scales;  ///< FP8: the first

  __device__ __forceinline__ void load(const std::uint8_t* record, bool is_window, int half) {
    const std::int32_t t = threadIdx.x % 4;
    if (record == nullptr) {
#pragma unroll
      for (uint4& word : words) {
        word = {0, 0, 0, 0};
      }
      scales = {0, 0};
    } else if (is_window) {
      const std::uint8_t* from = record + half * (kDim / 2) + t * 32;
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        words[word] = __ldg(reinterpret_cast<const uint4*>(from + word / 2 * kChunkColumns + word % 2 * 16));
      }
      scales.x = __ldg(reinterpret_cast<const unsigned*>(record + kDim) + t);
    } else {
      const std::uint8_t* from = record + t * 16;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        words[chunk] = __ldg(reinterpret_cast<const uint4*>(from + chunk * (kChunkColumns / 2)));
      }
      scales = __ldg(reinterpret_cast<const uint2*>(record + kDim / 2) + t);
    }
  }
  /// The lane's two of chunk `chunk`, FP4.
  [[nodiscard]] __device__ __forceinline__ unsigned fp4_scales(int chunk) const {
    const unsigned low = __shfl_sync(kWholeWarp, scales.x, chunk, 4);
    const unsigned high = __shfl_sync(kWholeWarp, scales.y, chunk, 4);
    return ((threadIdx.x & 2U) == 0 ? low : high) >> threadIdx.x % 2 * 16;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned fp8_scale_code(int chunk) const {
    return __shfl_sync(kWholeWarp, scales.x, chunk, 4) >> threadIdx.x % 4 * 8 & 0xFFU;
  }
};

/// The pieces of a warpgroup, one after the other: tiles n % 2 == place of all rows, twice each, halves of window tiles. Few registers.
class PieceCursor {
 public:
  bool is_window = false;
  int half = 1;

  __device__ PieceCursor() : tile_(static_cast<std::int32_t>(own_place()) - 2) {}

  /// The next piece. False: there is none.
  __device__ __forceinline__ bool advance(const AttendParams& p, const ManyShared& shared) {
    if (is_window && half == 0) {
      half = 1;
      return true;
    }
    tile_ += 2;
    while (tile_ >= num_tiles_) {
      tile_ -= num_tiles_;
      ++times_;
      if (times_ % 2 == 0) {
        const unsigned count = times_ / 2;
        if (blockIdx.x + count * gridDim.x >= static_cast<unsigned>(p.rows.num_rows)) {
          return false;
        }
        wait_barrier(shared.row_full(place_of(count)), parity_of(count));
        num_tiles_ = shared.rows[place_of(count)].num_tiles;
      }
    }
    const RowKeys& keys = shared.rows[place_of(times_ / 2)];
    const std::int32_t first = keys.first_place[tile_];
    is_window = first < places_of(p).window;
    half = 0;
    records_ = shared_address(keys.records + first + own_key());
    return true;
  }
  /// Of the thread's key and the one 8 further; null: the place is empty.
  template <int kKey>
  [[nodiscard]] __device__ __forceinline__ const std::uint8_t* record(const AttendParams& p) const {
    std::int32_t row = 0;
    asm volatile("ld.shared.b32 %0, [%1+%2];" : "=r"(row) : "r"(records_), "n"(kKey * 8 * sizeof(row)) : "memory");
    return is_window ? window_record_at(p, row) : compressed_record_at(p, row);
  }

 private:
  std::int32_t tile_, num_tiles_ = 0;
  unsigned times_ = ~0U;  ///< of going through a row: rows before, twice each, and one more the second time
  unsigned records_ = 0;
};

/// Decodes pieces to shared memory.
struct Decoder {
  const ManyShared& shared;
  unsigned first;  ///< where the lane's first values of its first key go

  __device__ explicit Decoder(const ManyShared& memory)
      : shared(memory),
        first(shared_address(memory.keys[own_place()]) +
              static_cast<unsigned>(tile_offset(own_key(), static_cast<std::int32_t>(threadIdx.x % 4 / 2))) + threadIdx.x % 2 * 8) {}

  /// Eight values of step kStep of a chunk whose tiles begin `offset` bytes on: two products take four each.
  template <int kOffset, int kStep>
  __device__ __forceinline__ void store(unsigned at, const unsigned (&pairs)[4]) const {
    constexpr unsigned kPiece = kStep % 2 * 4 * kPieceBytes;
    constexpr unsigned kTile = kOffset + kStep / 2 * kTileBytes;
    store_pair((at ^ kPiece) + kTile, pairs[0], pairs[1]);
    store_pair((at ^ (kPiece + 2 * kPieceBytes)) + kTile, pairs[2], pairs[3]);
  }

  template <int kKey, int kChunk>
  __device__ __forceinline__ void decode_fp4_chunk(const KeyPiece& x) const {
    constexpr int kOffset = kChunk * (kChunkColumns / 64) * kTileBytes + kKey * 8 * kTileRowBytes;
    const unsigned codes = x.fp4_scales(kChunk);
    const unsigned scales[2] = {shared.fp4_scales[codes & 0xFFU], shared.fp4_scales[codes >> 8 & 0xFFU]};
    const uint4 words = x.words[kChunk];
    unsigned pairs[4];
    cuda::decode_fp4(words.x, scales[0], pairs);
    store<kOffset, 0>(first, pairs);
    cuda::decode_fp4(words.y, scales[0], pairs);
    store<kOffset, 1>(first, pairs);
    cuda::decode_fp4(words.z, scales[1], pairs);
    store<kOffset, 2>(first, pairs);
    cuda::decode_fp4(words.w, scales[1], pairs);
    store<kOffset, 3>(first, pairs);
  }
  /// Chunk kChunk of the half that `x` has, whose tiles begin at `at`.
  template <int kKey, int kChunk>
  __device__ __forceinline__ void decode_fp8_chunk(const KeyPiece& x, unsigned at, int half) const {
    constexpr int kOffset = kChunk * (kChunkColumns / 64) * kTileBytes + kKey * 8 * kTileRowBytes;
    const unsigned usual = fp8_scale(x.fp8_scale_code(2 * half + kChunk));
    const auto scale = [&](const uint4& word) {
      const unsigned nan = nan_marks(word.x) | nan_marks(word.y) | nan_marks(word.z) | nan_marks(word.w);
      return nan != 0 ? kNanPair : usual;
    };
    unsigned pairs[4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint4 word = x.words[2 * kChunk + side];
      const unsigned own = scale(word);
      cuda::decode_fp8(word.x, word.y, own, pairs);
      side == 0 ? store<kOffset, 0>(at, pairs) : store<kOffset, 2>(at, pairs);
      cuda::decode_fp8(word.z, word.w, own, pairs);
      side == 0 ? store<kOffset, 1>(at, pairs) : store<kOffset, 3>(at, pairs);
    }
  }

  template <int kKey>
  __device__ __forceinline__ void decode(const KeyPiece& x, bool is_window, int half) const {
    if (is_window) {
      const unsigned at = first + static_cast<unsigned>(half) * (kQueryTiles / 2 * kTileBytes);
      decode_fp8_chunk<kKey, 0>(x, at, half);
      decode_fp8_chunk<kKey, 1>(x, at, half);
    } else {
      decode_fp4_chunk<kKey, 0>(x);
      decode_fp4_chunk<kKey, 1>(x);
      decode_fp4_chunk<kKey, 2>(x);
      decode_fp4_chunk<kKey, 3>(x);
    }
  }
};

/// Decodes all rows of the block.
__device__ __forceinline__ void decode_rows(const AttendParams& p, ManyShared& shared) {
  const Decoder decoder(shared);
  PieceCursor cursor;
  KeyPiece first;
  KeyPiece second;
  bool is_left = cursor.advance(p, shared);
  if (is_left) {
    first.load(cursor.record<0>(p), cursor.is_window, 0);
    second.load(cursor.record<1>(p), cursor.is_window, 0);
  }
  unsigned count = 0;  // of the warpgroup's tiles
#pragma unroll 1
  while (is_left) {
    const bool is_window = cursor.is_window;
    const int half = cursor.half;
    is_left = cursor.advance(p, shared);
    if (half == 0) {
      wait_barrier(shared.empty(own_place()), (count & 1U) ^ 1U);
    }
    decoder.decode<0>(first, is_window, half);
    if (is_left) {
      first.load(cursor.record<0>(p), cursor.is_window, cursor.half);
    }
    decoder.decode<1>(second, is_window, half);
    if (is_left) {
      second.load(cursor.record<1>(p), cursor.is_window, cursor.half);
    }
    if (!is_window || half == 1) {
      publish_tiles();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        arrive(shared.full(own_place()));
      }
      ++count;
    }
  }
}

#endif

}  // namespace deepinfer::cuda::wide
