// The warpgroups of attention_many.cu that decode keys to shared memory: one the first 256 columns of all tiles, one the others. What is
// decoded next is asked for before what is there is decoded, and stays in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/many_shared.cuh"

namespace deepinfer::cuda::wide {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Which half of the columns the warpgroup decodes.
__device__ __forceinline__ unsigned own_half() { return threadIdx.x / kGroupThreads % 2; }
/// Lane t = lane % 4 of two keys of a tile, 8 apart; neighbours in a half warp are two keys apart, so that their stores meet other banks.
__device__ __forceinline__ std::int32_t own_key() {
  return static_cast<std::int32_t>(threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x / 4 % 4 * 2 + threadIdx.x / 16 % 2);
}

/// What a thread loads at once: its part of both keys in FP4, of one key in FP8. Of 128 columns, a chunk, lane t of a key has
/// [32 t, 32 t + 32).
struct KeyPiece {
  uint4 words[4];      ///< FP4: [key][chunk]; FP8: [chunk][half of the lane's]
  unsigned scales[2];  ///< FP4: codes 4 t to 4 t + 3 of each key; FP8: those of a chunk, of lanes 0 to 3
};

/// The pieces of a warpgroup, one after the other: tiles of all rows, twice each, keys of window tiles.
class PieceCursor {
 public:
  bool is_window = false;
  int part = 1;  ///< FP8: which of the keys

  /// The next piece. False: there is none, the last one stays.
  __device__ __forceinline__ bool advance(const AttendParams& p, const ManyShared& shared) {
    if (is_window && part == 0) {
      part = 1;
      return true;
    }
    if (++tile_ >= num_tiles_) {
      const unsigned count = (times_ + 1) / 2;
      if ((times_ + 1) % 2 == 0) {
        if (blockIdx.x + count * gridDim.x >= static_cast<unsigned>(p.rows.num_rows)) {
          return false;
        }
        wait_barrier(shared.row_full(place_of(count)), parity_of(count));
        row_ = shared_address(&shared.rows[place_of(count)]);
        num_tiles_ = shared.rows[place_of(count)].num_tiles;
      }
      ++times_;
      tile_ = 0;
      next_ = loaded(row_ + offsetof(RowKeys, first_place));
    }
    const std::int32_t first = next_;
    next_ = loaded(row_ + offsetof(RowKeys, first_place) + static_cast<unsigned>(tile_ + 1) * sizeof(std::int32_t));
    is_window = first < places_of(p).window;
    part = 0;
    records_ = row_ + static_cast<unsigned>(first + own_key()) * sizeof(std::uint8_t*);
    return true;
  }

  __device__ __forceinline__ void load(KeyPiece& out) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 4 * 16);
    const auto half = static_cast<std::int32_t>(own_half());
    if (is_window) {
      const std::uint8_t* record = record_of(part);
      const std::uint8_t* from = record + half * (kDim / 2) + lane * 2;
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        out.words[word] =
            record == nullptr ? uint4{0, 0, 0, 0} : __ldg(reinterpret_cast<const uint4*>(from + word / 2 * kChunkColumns + word % 2 * 16));
      }
      const uint2 scales = record == nullptr ? uint2{0, 0} : __ldg(reinterpret_cast<const uint2*>(record + kDim) + half);
      out.scales[0] = scales.x;
      out.scales[1] = scales.y;
    } else {
      const std::uint8_t* const records[2] = {record_of(0), record_of(1)};
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        const std::uint8_t* from = records[key] + half * (kDim / 4) + lane;
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk) {
          out.words[key * 2 + chunk] =
              records[key] == nullptr ? uint4{0, 0, 0, 0} : __ldg(reinterpret_cast<const uint4*>(from + chunk * (kChunkColumns / 2)));
        }
        out.scales[key] =
            records[key] == nullptr ? 0 : __ldg(reinterpret_cast<const unsigned*>(records[key] + kDim / 2 + half * 16 + lane / 4));
      }
    }
  }

 private:
  static __device__ __forceinline__ std::int32_t loaded(unsigned address) {
    std::int32_t out = 0;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(out) : "r"(address));
    return out;
  }
  /// Of the thread's first key or the one 8 further.
  [[nodiscard]] __device__ __forceinline__ const std::uint8_t* record_of(int key) const {
    const std::uint8_t* out = nullptr;
    asm volatile("ld.shared.b64 %0, [%1];"
                 : "=l"(out)
                 : "r"(records_ + static_cast<unsigned>(key) * 8U * static_cast<unsigned>(sizeof(out))));
    return out;
  }

  std::int32_t tile_ = 0, num_tiles_ = 0;
  std::int32_t next_ = 0;  ///< place of the tile after this one, if the row has one
  unsigned times_ = ~0U;   ///< of going through a row: rows before, twice each, and one more the second time
  unsigned row_ = 0;       ///< its RowKeys in shared memory
  unsigned records_ = 0;
};
static_assert(offsetof(RowKeys, records) == 0);

/// Decodes pieces to shared memory.
struct Decoder {
  const ManyShared& shared;
  unsigned first;  ///< where the lane's first values of its first key go, at the first place

  __device__ explicit Decoder(const ManyShared& memory)
      : shared(memory),
        first(shared_address(memory.keys[0]) + own_half() * kHalfBytes +
              static_cast<unsigned>(tile_offset(own_key(), static_cast<std::int32_t>(threadIdx.x % 4 / 2))) + threadIdx.x % 2 * 8) {}

  /// Eight values of step kStep of a chunk whose tiles begin kOffset bytes on: two products take four each.
  template <int kOffset, int kStep>
  static __device__ __forceinline__ void store(unsigned at, const unsigned (&pairs)[4]) {
    constexpr unsigned kPiece = kStep % 2 * 4 * kPieceBytes;
    constexpr unsigned kTile = kOffset + kStep / 2 * kTileBytes;
    store_pair((at ^ kPiece) + kTile, pairs[0], pairs[1]);
    store_pair((at ^ (kPiece + 2 * kPieceBytes)) + kTile, pairs[2], pairs[3]);
  }

  template <int kKey, int kChunk>
  __device__ __forceinline__ void decode_fp4_chunk(const KeyPiece& x, unsigned at) const {
    constexpr int kOffset = kChunk * (kChunkColumns / 64) * kTileBytes + kKey * 8 * kTileRowBytes;
    const unsigned t = threadIdx.x % 4;
    const unsigned codes = __shfl_sync(kWholeWarp, x.scales[kKey], static_cast<int>(kChunk * 2 + t / 2), 4) >> t % 2 * 16;
    const unsigned scales[2] = {shared.fp4_scales[codes & 0xFFU], shared.fp4_scales[codes >> 8 & 0xFFU]};
    const uint4 words = x.words[kKey * 2 + kChunk];
    unsigned pairs[4][4];
    cuda::decode_fp4(words.x, scales[0], pairs[0]);
    store<kOffset, 0>(at, pairs[0]);
    cuda::decode_fp4(words.y, scales[0], pairs[1]);
    store<kOffset, 1>(at, pairs[1]);
    cuda::decode_fp4(words.z, scales[1], pairs[2]);
    store<kOffset, 2>(at, pairs[2]);
    cuda::decode_fp4(words.w, scales[1], pairs[3]);
    store<kOffset, 3>(at, pairs[3]);
  }
  /// Of the key whose rows begin at `at`.
  template <int kChunk>
  __device__ __forceinline__ void decode_fp8_chunk(const KeyPiece& x, unsigned at) const {
    constexpr int kOffset = kChunk * (kChunkColumns / 64) * kTileBytes;
    const unsigned usual = fp8_scale(x.scales[kChunk] >> threadIdx.x % 4 * 8 & 0xFFU);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint4 word = x.words[2 * kChunk + side];
      const unsigned nan = nan_marks(word.x) | nan_marks(word.y) | nan_marks(word.z) | nan_marks(word.w);
      const unsigned scale = nan != 0 ? kNanPair : usual;
      unsigned pairs[2][4];
      cuda::decode_fp8(word.x, word.y, scale, pairs[0]);
      side == 0 ? store<kOffset, 0>(at, pairs[0]) : store<kOffset, 2>(at, pairs[0]);
      cuda::decode_fp8(word.z, word.w, scale, pairs[1]);
      side == 0 ? store<kOffset, 1>(at, pairs[1]) : store<kOffset, 3>(at, pairs[1]);
    }
  }

  /// The count-th tile of the block. `now` is decoded while what comes next is on its way to `next`. False: nothing comes.
  __device__ __forceinline__ bool step(const AttendParams& p, PieceCursor& cursor, unsigned& count, const KeyPiece& now,
                                       KeyPiece& next) const {
    const bool is_window = cursor.is_window;
    const int part = cursor.part;
    const bool is_left = cursor.advance(p, shared);
    cursor.load(next);
    if (part == 0) {
      wait_barrier(shared.empty(own_half(), place_of(count)), parity_of(count) ^ 1U);
    }
    const unsigned at = first + place_of(count) * (2 * kHalfBytes);
    if (is_window) {
      const unsigned key = at + static_cast<unsigned>(part) * 8 * kTileRowBytes;
      decode_fp8_chunk<0>(now, key);
      decode_fp8_chunk<1>(now, key);
    } else {
      decode_fp4_chunk<0, 0>(now, at);
      decode_fp4_chunk<0, 1>(now, at);
      decode_fp4_chunk<1, 0>(now, at);
      decode_fp4_chunk<1, 1>(now, at);
    }
    if (!is_window || part == 1) {
      publish_tiles();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        arrive(shared.full(own_half(), place_of(count)));
      }
      ++count;
    }
    return is_left;
  }
};

/// Decodes all rows of the block.
__device__ __forceinline__ void decode_rows(const AttendParams& p, const ManyShared& shared) {
  const Decoder decoder(shared);
  PieceCursor cursor;
  KeyPiece pieces[2];
  unsigned count = 0;  // of tiles
  cursor.advance(p, shared);
  cursor.load(pieces[0]);
#pragma unroll 1
  while (decoder.step(p, cursor, count, pieces[0], pieces[1]) && decoder.step(p, cursor, count, pieces[1], pieces[0])) {
  }
}

#endif

}  // namespace deepinfer::cuda::wide
