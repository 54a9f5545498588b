// What the warpgroups of attention_many.cu have in common: their shared memory and its barriers.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/async_copies.cuh"
#include "backends/cuda/kernels/wide_shared.cuh"
#include "backends/cuda/kernels/wide_softmax.cuh"

namespace deepinfer::cuda::wide {

inline constexpr std::int32_t kManyThreads = 512;  ///< two warpgroups that multiply, then two that decode
inline constexpr std::int32_t kDecodingThreads = 256;
inline constexpr std::int32_t kDecodingWarps = kDecodingThreads / 32;
inline constexpr std::int32_t kMultiplyingWarps = 8;
inline constexpr std::int32_t kManyTiles = 10;  ///< 128 window places and 512 listed rows
inline constexpr std::int32_t kManyPlaces = kManyTiles * kTileKeys;
inline constexpr std::int32_t kOwnTiles = kManyTiles / 2;       ///< scored by a warpgroup
inline constexpr std::int32_t kOwnColumns = kDim / 2;           ///< of the output, summed by a warpgroup
inline constexpr std::int32_t kQueryTiles = kDim / 64;
inline constexpr std::int32_t kChunks = 4;                      ///< of a tile: columns that become ready at once
inline constexpr std::int32_t kChunkColumns = kDim / kChunks;

/// Where the keys of a row are.
struct RowKeys {
  const std::uint8_t* records[kManyPlaces];
  unsigned taken[kManyPlaces / 32];      ///< a bit for each place
  std::int32_t first_place[kManyTiles];  ///< of the tiles that hold keys
  std::int32_t num_tiles;
};

/// Dynamic shared memory of a block, nearly all that a multiprocessor has.
struct ManyShared {
  std::uint8_t tiles[kManyTiles * kTileBytes];      ///< queries [8 tiles of 64 values][head], then probabilities [10 tiles of 64 keys][head]
  std::uint8_t keys[2][kQueryTiles * kTileBytes];   ///< two tiles of keys, [8 tiles of 64 values][key], values in the order of the queries
  RowKeys rows[2];                                  ///< of the current row and the next
  float peaks[2][kHeads];                           ///< of the tiles of a warpgroup
  float denominators[2][kHeads];                    ///< the same
  std::uint64_t barriers[2 * kChunks + 8];

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  [[nodiscard]] __device__ std::uint32_t barrier(unsigned i) const { return shared_address(barriers) + i * sizeof(std::uint64_t); }
  /// A chunk of a tile is decoded; the tile has been read.
  [[nodiscard]] __device__ std::uint32_t full(unsigned place, unsigned chunk) const { return barrier(place * kChunks + chunk); }
  [[nodiscard]] __device__ std::uint32_t empty(unsigned place) const { return barrier(2 * kChunks + place); }
  /// The places of a row's keys are there; they have been read.
  [[nodiscard]] __device__ std::uint32_t row_full(unsigned place) const { return barrier(2 * kChunks + 2 + place); }
  [[nodiscard]] __device__ std::uint32_t row_empty(unsigned place) const { return barrier(2 * kChunks + 4 + place); }
  /// The queries are there; probabilities no longer stand where they go.
  [[nodiscard]] __device__ std::uint32_t queries_full() const { return barrier(2 * kChunks + 6); }
  [[nodiscard]] __device__ std::uint32_t queries_empty() const { return barrier(2 * kChunks + 7); }

  __device__ void init_barriers() const {
    for (unsigned place = 0; place < 2; ++place) {
      for (unsigned chunk = 0; chunk < kChunks; ++chunk) {
        init_barrier(full(place, chunk), kDecodingWarps);
      }
      init_barrier(empty(place), kMultiplyingWarps);
      init_barrier(row_full(place), 1);
      init_barrier(row_empty(place), kMultiplyingWarps);
    }
    init_barrier(queries_full(), kDecodingWarps);
    init_barrier(queries_empty(), kMultiplyingWarps);
    publish_barriers();
  }
#endif
};
static_assert(sizeof(ManyShared) <= 227 * 1024);

/// A row's tiles are decoded twice, for the scores and for the outputs; the n-th one of a block lies at place n % 2.
__device__ __forceinline__ unsigned place_of(unsigned n) { return n % 2; }
__device__ __forceinline__ unsigned parity_of(unsigned n) { return n / 2 % 2; }

}  // namespace deepinfer::cuda::wide
