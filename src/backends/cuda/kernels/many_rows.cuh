// What the warpgroups of attention_many.cu that multiply do before a row: queries to shared memory, and where the keys of the row after
// lie.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/many_shared.cuh"
#include "backends/cuda/kernels/wide_scores.cuh"

namespace deepinfer::cuda::wide {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void multiplying_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kMultiplyingThreads) : "memory"); }

/// Where the keys of a row are: two loads that wait for each other, then shared memory.
class RowSearch {
 public:
  __device__ __forceinline__ RowSearch(const AttendParams& p, std::int64_t r) : table_(p, r) {
    const Places places = places_of(p);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      listed_[i] = table_.listed_row(place(i) - places.window);
    }
  }
  __device__ __forceinline__ void find_blocks(const AttendParams& p) {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      block_[i] = table_.block_of(p, listed_[i]);
    }
  }
  /// All of the warpgroups: to row keys `count` of the block.
  __device__ __forceinline__ void publish(const AttendParams& p, ManyShared& shared, unsigned count) const {
    const Places places = places_of(p);
    const std::int32_t lane = threadIdx.x % 32;
    RowKeys& row = shared.rows[place_of(count)];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (place(i) < places.all) {  // for whole warps: places are multiples of 64
        const std::uint8_t* record =
            place(i) < places.window ? table_.window_record(p, place(i)) : table_.compressed_record(p, listed_[i], block_[i]);
        row.records[place(i)] = record;
        const unsigned taken = __ballot_sync(kWholeWarp, record != nullptr);
        if (lane == 0) {
          row.taken[place(i) / 32] = taken;
        }
      }
    }
    multiplying_barrier();
    if (threadIdx.x < 32) {
      const bool is_taken = lane < places.all / kTileKeys && (row.taken[2 * lane] | row.taken[2 * lane + 1]) != 0;
      const unsigned tiles = __ballot_sync(kWholeWarp, is_taken);
      if (is_taken || (tiles == 0 && lane == 0)) {
        row.first_place[__popc(tiles & ((1U << lane) - 1U))] = lane * kTileKeys;
      }
      if (lane == 0) {
        row.num_tiles = tiles == 0 ? 1 : __popc(tiles);
      }
      __syncwarp();
      if (lane == 0) {
        arrive(shared.row_full(place_of(count)));
      }
    }
  }

 private:
  static constexpr int kMost = (kManyPlaces + kMultiplyingThreads - 1) / kMultiplyingThreads;
  static __device__ __forceinline__ std::int32_t place(int i) { return static_cast<std::int32_t>(threadIdx.x) + i * kMultiplyingThreads; }

  KeyTable table_;
  std::int32_t listed_[kMost];
  std::int32_t block_[kMost] = {};
};

/// The queries of a row on their way to shared memory, in the order of the keys: of 128 neighbouring columns lane t of a product has
/// [32 t, 32 t + 32), eight for two products.
class RowQueries {
 public:
  __device__ __forceinline__ RowQueries(const AttendParams& p, std::int64_t r) {
    const bf16* from = row_at(p.q, r, kHeads * kDim) + head() * kDim + warp() / 4 * kChunkColumns + t() * 32 + warp() % 4 * 8;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      pieces_[i] = __ldg(reinterpret_cast<const uint4*>(from + i / 2 * 8 * kDim + i % 2 * (kDim / 2)));
    }
  }
  __device__ __forceinline__ void store(ManyShared& shared) const {
    constexpr unsigned kHalf = 2 * kPieceBytes;  ///< of the pieces of a product
    const unsigned to = shared_address(shared.tiles) + static_cast<unsigned>(warp() / 2 * kTileBytes) +
                        static_cast<unsigned>(tile_offset(head(), warp() % 2 * 4 + t() / 2)) + static_cast<unsigned>(t() % 2 * 8);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4 x = pieces_[i];
      const unsigned tile = static_cast<unsigned>(i / 2 * 8 * kTileRowBytes + i % 2 * (kQueryTiles / 2) * kTileBytes);
      store_pair(to + tile, __byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632));
      store_pair((to ^ kHalf) + tile, __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632));
    }
  }

 private:
  static constexpr int kPieces = kHeads * kDim / 8 / kMultiplyingThreads;
  static_assert(kPieces == 16 && kMultiplyingWarps == 8);

  // Piece i of a thread: head head() + 8 (i / 2), eight columns of step warp() + 8 (i % 2). Neighbours in a half warp are two heads apart,
  // so that their stores meet other banks.
  static __device__ __forceinline__ std::int32_t warp() { return static_cast<std::int32_t>(threadIdx.x / 32); }
  static __device__ __forceinline__ std::int32_t t() { return static_cast<std::int32_t>(threadIdx.x % 4); }
  static __device__ __forceinline__ std::int32_t head() {
    return static_cast<std::int32_t>(threadIdx.x / 4 % 4 * 2 + threadIdx.x / 16 % 2);
  }

  uint4 pieces_[kPieces];
};

/// Brings the queries on their way from memory into the cache.
__device__ __forceinline__ void expect_queries(const AttendParams& p, std::int64_t r) {
  constexpr std::int32_t kLine = 128;
  constexpr int kLines = kHeads * kDim * sizeof(bf16) / kLine / kMultiplyingThreads;
  const auto* queries = reinterpret_cast<const std::uint8_t*>(row_at(p.q, r, kHeads * kDim)) + threadIdx.x * kLine;
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(queries + i * kMultiplyingThreads * kLine));
  }
}

#endif

}  // namespace deepinfer::cuda::wide
