// The warpgroups of attention_many.cu that decode: places of keys, queries and keys to shared memory, a row after the other.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/many_shared.cuh"
#include "backends/cuda/kernels/wide_scores.cuh"

namespace deepinfer::cuda::wide {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void decoding_barrier() { asm volatile("bar.sync 2, %0;" ::"n"(kDecodingThreads) : "memory"); }

/// Where the keys of row r are, the count-th of the block. Every load of a thread is issued before the first that depends on one.
__device__ __forceinline__ void find_row(const AttendParams& p, ManyShared& shared, std::int64_t r, unsigned count) {
  constexpr int kMost = (kManyPlaces + kDecodingThreads - 1) / kDecodingThreads;
  const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x) % kDecodingThreads;
  const std::int32_t lane = threadIdx.x % 32;
  constexpr std::int32_t kLine = 128;
  constexpr int kLines = kHeads * kDim * sizeof(bf16) / kLine / kDecodingThreads;
  const auto* queries = reinterpret_cast<const std::uint8_t*>(row_at(p.q, r, kHeads * kDim));
  for (int i = 0; i < kLines; ++i) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(queries + (i * kDecodingThreads + thread) * kLine));
  }
  const Places places = places_of(p);
  const KeyTable table(p, r);
  std::int32_t listed[kMost];
  std::int32_t block[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    listed[i] = table.listed_row(thread + i * kDecodingThreads - places.window);
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    block[i] = table.block_of(p, listed[i]);
  }
  RowKeys& row = shared.rows[count % 2];
  wait_barrier(shared.row_empty(place_of(count)), parity_of(count) ^ 1U);
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const std::int32_t place = thread + i * kDecodingThreads;
    if (place < places.all) {  // for whole warps: places are multiples of 64
      const std::uint8_t* record = place < places.window ? table.window_record(p, place) : table.compressed_record(p, listed[i], block[i]);
      row.records[place] = record;
      const unsigned taken = __ballot_sync(kWholeWarp, record != nullptr);
      if (lane == 0) {
        row.taken[place / 32] = taken;
      }
    }
  }
  decoding_barrier();
  if (thread < 32) {
    const bool is_taken = lane < places.all / kTileKeys && (row.taken[2 * lane] | row.taken[2 * lane + 1]) != 0;
    const unsigned tiles = __ballot_sync(kWholeWarp, is_taken);
    if (is_taken) {
      row.first_place[__popc(tiles & ((1U << lane) - 1U))] = lane * kTileKeys;
    }
    if (lane == 0) {
      row.num_tiles = __popc(tiles);
    }
  }
  decoding_barrier();
  if (thread == 0) {
    arrive(shared.row_full(place_of(count)));
  }
}

/// What a thread loads at once of its two keys: all in FP4, half in FP8. Of 128 columns, a chunk, lane t of a key has [32 t, 32 t + 32); it
/// has the scales of chunk t for all four lanes.
struct KeyPiece {
  uint4 words[2][4];
  uint2 scales[2];  ///< FP8: the first

  /// Of records[0] and records[8].
  __device__ __forceinline__ void load(const std::uint8_t* const* records, bool is_window, int half) {
    const std::int32_t t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint8_t* record = records[i * 8];
      if (record == nullptr) {
#pragma unroll
        for (uint4& word : words[i]) {
          word = {0, 0, 0, 0};
        }
        scales[i] = {0, 0};
      } else if (is_window) {
        const std::uint8_t* from = record + half * (kDim / 2) + t * 32;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          words[i][word] = __ldg(reinterpret_cast<const uint4*>(from + word / 2 * kChunkColumns + word % 2 * 16));
        }
        scales[i].x = __ldg(reinterpret_cast<const unsigned*>(record + kDim) + t);
      } else {
        const std::uint8_t* from = record + t * 16;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          words[i][chunk] = __ldg(reinterpret_cast<const uint4*>(from + chunk * (kChunkColumns / 2)));
        }
        scales[i] = __ldg(reinterpret_cast<const uint2*>(record + kDim / 2) + t);
      }
    }
  }
  /// The lane's two of chunk `chunk` of key i, FP4.
  [[nodiscard]] __device__ __forceinline__ unsigned fp4_scales(int i, int chunk) const {
    const unsigned low = __shfl_sync(kWholeWarp, scales[i].x, chunk, 4);
    const unsigned high = __shfl_sync(kWholeWarp, scales[i].y, chunk, 4);
    const unsigned t = threadIdx.x % 4;
    return (t / 2 == 0 ? low : high) >> t % 2 * 16;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned fp8_scale_code(int i, int chunk) const {
    return __shfl_sync(kWholeWarp, scales[i].x, chunk, 4) >> threadIdx.x % 4 * 8 & 0xFFU;
  }
};

/// A thread that decodes: lane t = lane % 4 of keys 16 warp + lane / 4 and 8 more of its warpgroup's tiles. A warpgroup fills one of
/// the two places; while it waits for loads, the other one decodes.
struct Decoder {
  ManyShared& shared;
  unsigned place = threadIdx.x / kGroupThreads % 2;
  std::int32_t key = static_cast<std::int32_t>(threadIdx.x) % kGroupThreads / 32 * 16 + static_cast<std::int32_t>(threadIdx.x % 32) / 4;
  unsigned pieces[8];  ///< where the lane's part of each piece of its first key goes, in the first of the place's tiles

  __device__ explicit Decoder(ManyShared& memory) : shared(memory) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      pieces[i] = shared_address(shared.keys[place]) + static_cast<unsigned>(tile_offset(key, i)) + threadIdx.x % 4 * 4;
    }
  }

  /// Eight values of step kStep of chunk kChunk of key kKey: pair i of four goes to piece kStep % 2 * 4 + i of its tile.
  template <int kKey, int kChunk, int kStep>
  __device__ __forceinline__ void store(const unsigned (&pairs)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("st.shared.b32 [%0+%2], %1;" ::"r"(pieces[kStep % 2 * 4 + i]), "r"(pairs[i]),
                   "n"((kChunk * (kChunkColumns / 64) + kStep / 2) * kTileBytes + kKey * 8 * kTileRowBytes)
                   : "memory");
    }
  }

  template <int kKey, int kChunk>
  __device__ __forceinline__ void decode_fp4(const KeyPiece& x) const {
    const unsigned codes = x.fp4_scales(kKey, kChunk);
    const unsigned scales[2] = {fp4_scale(codes & 0xFFU), fp4_scale(codes >> 8 & 0xFFU)};
    const uint4 words = x.words[kKey][kChunk];
    unsigned pairs[4];
    cuda::decode_fp4(words.x, scales[0], pairs);
    store<kKey, kChunk, 0>(pairs);
    cuda::decode_fp4(words.y, scales[0], pairs);
    store<kKey, kChunk, 1>(pairs);
    cuda::decode_fp4(words.z, scales[1], pairs);
    store<kKey, kChunk, 2>(pairs);
    cuda::decode_fp4(words.w, scales[1], pairs);
    store<kKey, kChunk, 3>(pairs);
  }
  /// Chunk kChunk of the half that `x` has; `pieces` are where the half goes.
  template <int kKey, int kChunk>
  __device__ __forceinline__ void decode_fp8(const KeyPiece& x, int half) const {
    const unsigned usual = fp8_scale(x.fp8_scale_code(kKey, 2 * half + kChunk));
    const auto scale = [&](const uint4& word) {
      const unsigned nan = nan_marks(word.x) | nan_marks(word.y) | nan_marks(word.z) | nan_marks(word.w);
      return nan != 0 ? kNanPair : usual;
    };
    const uint4 first = x.words[kKey][2 * kChunk];
    const uint4 second = x.words[kKey][2 * kChunk + 1];
    unsigned pairs[4];
    cuda::decode_fp8(first.x, first.y, scale(first), pairs);
    store<kKey, kChunk, 0>(pairs);
    cuda::decode_fp8(first.z, first.w, scale(first), pairs);
    store<kKey, kChunk, 1>(pairs);
    cuda::decode_fp8(second.x, second.y, scale(second), pairs);
    store<kKey, kChunk, 2>(pairs);
    cuda::decode_fp8(second.z, second.w, scale(second), pairs);
    store<kKey, kChunk, 3>(pairs);
  }
  template <int kChunk>
  __device__ __forceinline__ void decode_fp4_chunk(const KeyPiece& x) const {
    decode_fp4<0, kChunk>(x);
    decode_fp4<1, kChunk>(x);
  }
  __device__ __forceinline__ void move(unsigned bytes) {
#pragma unroll
    for (unsigned& piece : pieces) {
      piece += bytes;
    }
  }

  /// The block's n-th tile, whose first key is at `first`.
  __device__ __forceinline__ void decode_tile(const RowKeys& row, std::int32_t first, bool is_window, unsigned n) {
    constexpr unsigned kHalfBytes = kQueryTiles / 2 * kTileBytes;
    const std::uint8_t* const* records = row.records + first + key;
#pragma unroll 1
    for (int half = 0; half < (is_window ? 2 : 1); ++half) {
      KeyPiece piece;
      piece.load(records, is_window, half);
      if (half == 0) {
        wait_barrier(shared.empty(place), parity_of(n) ^ 1U);
      }
      if (is_window) {
        decode_fp8<0, 0>(piece, half);
        decode_fp8<1, 0>(piece, half);
        decode_fp8<0, 1>(piece, half);
        decode_fp8<1, 1>(piece, half);
        move(half == 0 ? kHalfBytes : 0U - kHalfBytes);
      } else {
        decode_fp4_chunk<0>(piece);
        decode_fp4_chunk<1>(piece);
        decode_fp4_chunk<2>(piece);
        decode_fp4_chunk<3>(piece);
      }
    }
    publish_tiles();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(shared.full(place));
    }
  }
};

/// The queries of row r to shared memory, as load_queries() of wide_scores.cuh leaves them.
__device__ __forceinline__ void bring_queries(const AttendParams& p, ManyShared& shared, std::int64_t r) {
  // Piece i of a thread: head 8 (i / 2) + thread / 4 % 8, step warp + 8 (i % 2) of those 8 columns that every lane has.
  constexpr int kPieces = kHeads * kDim / 8 / kDecodingThreads;
  constexpr int kAhead = 8;
  static_assert(kPieces == 16 && kDecodingWarps == 8);
  const unsigned thread = threadIdx.x % kDecodingThreads;
  const unsigned warp = thread / 32;
  const unsigned t = thread % 4;
  const unsigned head = thread / 4 % 8;
  const bf16* from = row_at(p.q, r, kHeads * kDim) + head * kDim + warp / 4 * 128 + t * 32 + warp % 4 * 8;
  const unsigned to = shared_address(shared.tiles) + warp / 2 * kTileBytes + head * kTileRowBytes + t * 4;
#pragma unroll 1
  for (int first = 0; first < kPieces; first += kAhead) {
    uint4 x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      x[i] = __ldg(reinterpret_cast<const uint4*>(from + (first + i) / 2 * 8 * kDim + i % 2 * 256));
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const unsigned pairs[4] = {__byte_perm(x[i].x, x[i].z, 0x5410), __byte_perm(x[i].x, x[i].z, 0x7632),
                                 __byte_perm(x[i].y, x[i].w, 0x5410), __byte_perm(x[i].y, x[i].w, 0x7632)};
      const unsigned tile = to + static_cast<unsigned>((first + i) / 2 * 8 * kTileRowBytes + i % 2 * 4 * kTileBytes);
#pragma unroll
      for (unsigned pair = 0; pair < 4; ++pair) {
        const unsigned piece = (warp % 2 * 4 + pair) ^ head;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + piece * kPieceBytes), "r"(pairs[pair]) : "memory");
      }
    }
  }
  publish_tiles();
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    arrive(shared.queries_full());
  }
}

/// Decodes all rows of the block. The next row's keys are looked for between the two times, while probabilities are made.
__device__ __forceinline__ void decode_rows(const AttendParams& p, ManyShared& shared) {
  Decoder decoder(shared);
  const std::int32_t window = places_of(p).window;
  find_row(p, shared, blockIdx.x, 0);
  unsigned count = 0;  // of rows
  unsigned n = 0;      // of tiles
#pragma unroll 1
  for (auto r = static_cast<std::int32_t>(blockIdx.x); r < p.rows.num_rows; r += static_cast<std::int32_t>(gridDim.x), ++count) {
    const RowKeys& row = shared.rows[place_of(count)];
    const std::int32_t next_row = r + static_cast<std::int32_t>(gridDim.x);
    wait_barrier(shared.queries_empty(), (count & 1U) ^ 1U);
    bring_queries(p, shared, r);
    const std::int32_t num_tiles = row.num_tiles;
#pragma unroll 1
    for (int time = 0; time < 2; ++time) {
      if (time == 1 && next_row < p.rows.num_rows) {
        find_row(p, shared, next_row, count + 1);
      }
#pragma unroll 1
      for (std::int32_t tile = 0; tile < num_tiles; ++tile, ++n) {
        if (place_of(n) == decoder.place) {
          const std::int32_t first = row.first_place[tile];
          decoder.decode_tile(row, first, first < window, n);
        }
      }
    }
  }
}

#endif

}  // namespace deepinfer::cuda::wide
