// What the blocks of attention_wide.cu have in common: the shape, the shares of a cluster's blocks, their shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/attention_keys.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace deepinfer::cuda::wide {

inline constexpr std::int32_t kHeads = 64;
inline constexpr std::int32_t kDim = 512;
inline constexpr std::int32_t kThreads = 256;  ///< two warpgroups
inline constexpr std::int32_t kGroupThreads = 128;
inline constexpr std::int32_t kWarps = kThreads / 32;
inline constexpr std::int32_t kMaxTiles = 11;  ///< 192 window places and 512 listed rows
inline constexpr std::int32_t kMaxPlaces = kMaxTiles * kTileKeys;
inline constexpr std::int32_t kTileBytes = kHeads * kTileRowBytes;
inline constexpr std::int32_t kStageBytes = 8192;
inline constexpr std::int32_t kTileParts = 4;  ///< warps of a group: each has 16 keys of a tile

/// What a block of a cluster of kBlocks does.
template <int kBlocks>
struct Share {
  static constexpr std::int32_t kGroups = 2 * kBlocks;                              ///< warpgroups that score tiles
  static constexpr std::int32_t kTiles = (kMaxTiles + kGroups - 1) / kGroups;       ///< of a group, at most
  static constexpr int kAhead = kTiles > 1 ? 2 : 4;                                 ///< loads of keys in flight, as registers allow
  static constexpr std::int32_t kColumns = kDim / kBlocks;                          ///< of the output
  static constexpr std::int32_t kGroupColumns = std::max(kColumns / 2, kTileKeys);  ///< a small block leaves the sums to its first group
  static constexpr std::int32_t kSummingGroups = kColumns / kGroupColumns;
  static constexpr std::int32_t kStageKeys = kStageBytes / (2 * kColumns);  ///< decoded at once, 16 values a thread
  static constexpr std::int32_t kBlockBytes = kStageKeys * kTileRowBytes;   ///< of 64 columns of a stage
};

/// Dynamic shared memory. Two blocks share a multiprocessor.
struct Shared {
  /// Queries [8 tiles of 64 values][head], then probabilities [11 tiles of 64 keys][head].
  std::uint8_t tiles[kMaxTiles * kTileBytes];
  std::uint8_t stages[2 * kStageBytes];  ///< decoded keys; before, sums of probabilities [tile][part][head]
  const std::uint8_t* records[kMaxPlaces];
  float warp_peaks[kWarps][kHeads];
  float block_peaks[kHeads];
  float denominators[kHeads];  ///< before, what scores are taken against
  std::int32_t taken[kMaxPlaces / 32];
  std::int32_t first_place[kMaxTiles];  ///< of the tiles that hold keys
  std::int32_t num_tiles;

  __device__ float* sums() { return reinterpret_cast<float*>(stages); }
  /// Scores of a group's first tile while it scores two more: behind the queries.
  __device__ float* stash(std::int32_t group) {
    return reinterpret_cast<float*>(tiles + kDim / 64 * kTileBytes) + group * kGroupThreads * 32;
  }
};
static_assert(sizeof(Shared) <= 113 * 1024);
static_assert(kMaxTiles * kTileParts * kHeads * sizeof(float) <= 2 * kStageBytes);

}  // namespace deepinfer::cuda::wide
