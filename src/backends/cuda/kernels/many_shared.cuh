// What the warpgroups of attention_many.cu have in common: their shared memory and its barriers.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/async_copies.cuh"
#include "backends/cuda/kernels/wide_shared.cuh"
#include "backends/cuda/kernels/wide_softmax.cuh"

namespace deepinfer::cuda::wide {

inline constexpr std::int32_t kManyThreads = 512;  ///< two warpgroups that multiply, then two that decode
inline constexpr std::int32_t kMultiplyingThreads = 256;
inline constexpr std::int32_t kMultiplyingWarps = kMultiplyingThreads / 32;
inline constexpr std::int32_t kManyTiles = 10;  ///< 128 window places and 512 listed rows
inline constexpr std::int32_t kManyPlaces = kManyTiles * kTileKeys;
inline constexpr std::int32_t kOwnTiles = kManyTiles / 2;  ///< scored by a warpgroup
inline constexpr std::int32_t kOwnColumns = kDim / 2;      ///< of the output, summed by a warpgroup
inline constexpr std::int32_t kTurned = 64;                ///< last values of a head, which have a rotation
inline constexpr std::int32_t kQueryTiles = kDim / 64;
inline constexpr std::int32_t kChunkColumns = kDim / 4;  ///< of which a lane has a quarter
inline constexpr unsigned kHalfBytes = kQueryTiles / 2 * kTileBytes;
inline constexpr std::int32_t kScaleCodes = 256;
inline constexpr int kStashed = 16;  ///< scores of a thread's first tile that wait where the warpgroup's last probabilities will lie

/// Where the keys of a row are.
struct RowKeys {
  const std::uint8_t* records[kManyPlaces];  ///< null: the place is empty
  unsigned taken[kManyPlaces / 32];          ///< a bit for each place
  std::int32_t first_place[kManyTiles + 1];  ///< of the tiles that hold keys; one more may be read
  std::int32_t num_tiles;                    ///< at least one, empty or not: who decodes looks one row ahead and no further
};

/// Dynamic shared memory of a block, nearly all that a multiprocessor has: what does not fit into registers costs a way to the second-level
/// cache.
struct ManyShared {
  /// Queries [8 tiles of 64 values][head], then probabilities [10 tiles of 64 keys][head].
  std::uint8_t tiles[kManyTiles * kTileBytes];
  /// Two tiles of keys, [8 tiles of 64 values][key], values in the order of the queries. Halves of four tiles are a stage.
  std::uint8_t keys[2][kQueryTiles * kTileBytes];
  RowKeys rows[2];                   ///< of the current row and the next
  float peaks[2][kHeads];            ///< highest products of the tiles that a warpgroup scores
  float denominators[2][kHeads];     ///< their sums of probabilities
  unsigned fp4_scales[kScaleCodes];  ///< as decode_fp4() takes them
  std::uint64_t barriers[10];

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  [[nodiscard]] __device__ std::uint32_t barrier(unsigned i) const { return shared_address(barriers) + i * sizeof(std::uint64_t); }
  /// Half `half` of the tile at a place is decoded; it has been read.
  [[nodiscard]] __device__ std::uint32_t full(unsigned half, unsigned place) const { return barrier(half * 2 + place); }
  [[nodiscard]] __device__ std::uint32_t empty(unsigned half, unsigned place) const { return barrier(4 + half * 2 + place); }
  /// The places of a row's keys are there. They stay until all tiles of the row after have been read.
  [[nodiscard]] __device__ std::uint32_t row_full(unsigned place) const { return barrier(8 + place); }

  __device__ void init_barriers() const {
    for (unsigned place = 0; place < 2; ++place) {
      for (unsigned half = 0; half < 2; ++half) {
        init_barrier(full(half, place), kTileParts);
        init_barrier(empty(half, place), kTileParts);
      }
      init_barrier(row_full(place), 1);
    }
    publish_barriers();
  }
#endif
};
static_assert(sizeof(ManyShared) <= 227 * 1024);

/// A row's tiles are decoded twice, for the scores and for the outputs; the n-th one of a block lies at place n % 2, whatever the row.
__device__ __forceinline__ unsigned place_of(unsigned n) { return n % 2; }
__device__ __forceinline__ unsigned parity_of(unsigned n) { return n / 2 % 2; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// To a tile. Loads may move across it: tiles are read by products alone.
__device__ __forceinline__ void store_pair(unsigned address, unsigned first, unsigned second) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second));
}

#endif

}  // namespace deepinfer::cuda::wide
