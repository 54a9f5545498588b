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
  static_assert(kHeads * kDim * sizeof(bf16) == 2 * kLine * kDecodingThreads);
  const auto* queries = reinterpret_cast<const std::uint8_t*>(row_at(p.q, r, kHeads * kDim));
  for (int i = 0; i < 2; ++i) {
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

/// What a lane loads of half a key: two chunks of 128 columns, of which lane t of a key has columns [32 t, 32 t + 32).
struct HalfKey {
  uint4 words[4];  ///< FP4: two
  unsigned scales[2];
  bool is_window;

  __device__ __forceinline__ void load(const std::uint8_t* record, bool in_window, std::int32_t half) {
    const std::int32_t t = threadIdx.x % 4;
    is_window = in_window;
    scales[0] = 0;
    scales[1] = 0;
#pragma unroll
    for (uint4& word : words) {
      word = {0, 0, 0, 0};
    }
    if (record == nullptr) {
      return;
    }
    const std::int32_t chunk = 2 * half;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (in_window) {
        words[2 * i] = __ldg(reinterpret_cast<const uint4*>(record + (chunk + i) * 128 + t * 32));
        words[2 * i + 1] = __ldg(reinterpret_cast<const uint4*>(record + (chunk + i) * 128 + t * 32 + 16));
        scales[i] = __ldg(record + kDim + (chunk + i) * 4 + t);
      } else {
        words[i] = __ldg(reinterpret_cast<const uint4*>(record + (chunk + i) * 64 + t * 16));
        scales[i] = __ldg(reinterpret_cast<const unsigned short*>(record + kDim / 2 + (chunk + i) * 8 + t * 2));
      }
    }
  }
};

/// A thread that decodes: lane t = lane % 4 of key 8 warp + lane / 4.
struct Decoder {
  std::int32_t key = static_cast<std::int32_t>(threadIdx.x) % kDecodingThreads / 4;
  unsigned place = shared_place();  ///< of the lane's part of piece 0 of its key

  [[nodiscard]] __device__ __forceinline__ unsigned shared_place() const {
    return static_cast<unsigned>(tile_offset(key, 0)) + threadIdx.x % 4 * 4;
  }

  /// Eight values of step `step` of a chunk, at `chunk`: pair i of four goes to piece step % 2 * 4 + i of its tile.
  __device__ __forceinline__ void store(unsigned chunk, int step, const unsigned (&pairs)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned to = (chunk + place) ^ static_cast<unsigned>((step % 2 * 4 + i) * kPieceBytes);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + static_cast<unsigned>(step / 2 * kTileBytes)), "r"(pairs[i]) : "memory");
    }
  }

  /// One chunk of the lane's key, at shared address `chunk`.
  template <int kChunk>
  __device__ __forceinline__ void decode(const HalfKey& x, unsigned chunk) const {
    unsigned pairs[4];
    if (x.is_window) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 word = x.words[2 * kChunk + half];
        const unsigned nan = nan_marks(word.x) | nan_marks(word.y) | nan_marks(word.z) | nan_marks(word.w);
        const unsigned scale = nan != 0 ? kNanPair : fp8_scale(x.scales[kChunk]);
        decode_fp8(word.x, word.y, scale, pairs);
        store(chunk, 2 * half, pairs);
        decode_fp8(word.z, word.w, scale, pairs);
        store(chunk, 2 * half + 1, pairs);
      }
    } else {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        decode_fp4(word_of(x.words[kChunk], step), fp4_scale(x.scales[kChunk] >> step / 2 * 8 & 0xFFU), pairs);
        store(chunk, step, pairs);
      }
    }
  }
};

/// The queries of row r to shared memory, as load_queries() of wide_scores.cuh leaves them.
__device__ __forceinline__ void bring_queries(const AttendParams& p, ManyShared& shared, std::int64_t r) {
  // Piece i of a thread: head 8 (i / 2) + thread / 4 % 8, step warp + 8 (i % 2) of those 8 columns that every lane has.
  constexpr int kPieces = kHeads * kDim / 8 / kDecodingThreads;
  constexpr int kAhead = 4;
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
  const Decoder decoder;
  const std::int32_t window = places_of(p).window;
  HalfKey next;
  const auto fetch = [&](const RowKeys& row, std::int32_t tile, std::int32_t half) {
    if (tile < row.num_tiles) {
      const std::int32_t first = row.first_place[tile];
      next.load(row.records[first + decoder.key], first < window, half);
    }
  };
  const auto tell = [](std::uint32_t barrier) {
    publish_tiles();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(barrier);
    }
  };
  find_row(p, shared, blockIdx.x, 0);
  fetch(shared.rows[0], 0, 0);
  unsigned count = 0;  // of rows
  unsigned n = 0;      // of tiles
#pragma unroll 1
  for (std::int64_t r = blockIdx.x; r < p.rows.num_rows; r += gridDim.x, ++count) {
    const RowKeys& row = shared.rows[place_of(count)];
    const bool is_last = r + gridDim.x >= p.rows.num_rows;
    wait_barrier(shared.queries_empty(), (count & 1U) ^ 1U);
    bring_queries(p, shared, r);
    const std::int32_t num_tiles = row.num_tiles;
#pragma unroll 1
    for (int time = 0; time < 2; ++time) {
      if (time == 1 && !is_last) {
        find_row(p, shared, r + gridDim.x, count + 1);
      }
#pragma unroll 1
      for (std::int32_t tile = 0; tile < num_tiles; ++tile, ++n) {
        const unsigned keys = shared_address(shared.keys[place_of(n)]);
        wait_barrier(shared.empty(place_of(n)), parity_of(n) ^ 1U);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const HalfKey now = next;
          if (half == 0) {
            fetch(row, tile, 1);
          } else if (tile + 1 < num_tiles || time == 0) {
            fetch(row, tile + 1 < num_tiles ? tile + 1 : 0, 0);
          } else if (!is_last) {
            fetch(shared.rows[place_of(count + 1)], 0, 0);
          }
          decoder.decode<0>(now, keys + half * 4 * kTileBytes);
          tell(shared.full(place_of(n), 2 * half));
          decoder.decode<1>(now, keys + (half * 4 + 2) * kTileBytes);
          tell(shared.full(place_of(n), 2 * half + 1));
        }
      }
    }
    if (num_tiles == 0 && !is_last) {
      fetch(shared.rows[place_of(count + 1)], 0, 0);
    }
  }
}

#endif

}  // namespace deepinfer::cuda::wide
