// Packed activations (gemm.h): where a product with warpgroup instructions looks for the values of a column.
// A packed tile is [k / 8][columns][8]: what an instruction of 16 values takes are two neighbouring pieces of 8 values of a column.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"

namespace deepinfer::cuda {

/// A column of packed activations.
struct PackedColumn {
  std::int64_t first;            // place of its tile's first column
  std::int32_t columns, within;  // of the tile, and which of them it is
  std::int32_t column;           // of all that are not packed
};

/// The column that is number `in_eight` of the eight that lie at place 8 * eight. False: there is none.
__device__ __forceinline__ bool find_column(const PackParams& p, std::int32_t eight, std::int32_t in_eight, PackedColumn& out) {
  std::int32_t tile = eight * 8 / p.columns.columns;
  out.columns = p.columns.columns;
  out.first = static_cast<std::int64_t>(tile) * out.columns;
  if (p.tile_of != nullptr) {
    if (eight * 8 / kWideStep >= *p.num_steps) {
      return false;
    }
    tile = p.tile_of[eight * 8 / kWideStep];
    out.first = p.tiles[tile].w;
    out.columns = wide_columns(p.tiles[tile].z, p.columns.columns);
  }
  out.within = static_cast<std::int32_t>(eight * 8 - out.first) + in_eight;
  out.column = static_cast<std::int32_t>(out.first) + out.within;
  if (p.tiles == nullptr) {
    return out.column < p.num_columns;
  }
  if (tile >= *p.num_tiles || out.within >= p.tiles[tile].z) {
    return false;
  }
  out.column = p.tiles[tile].y + out.within;
  return true;
}

inline constexpr int kPackWarps = kBlockThreads / 32;
/// Parts of `k` for blocks of kPackWarps warps, each of which packs `warp_values` of eight columns at a time. Finding a column takes longer than
/// packing a part of it: not many more parts than blocks that run at once.
inline unsigned packing_parts(int k, int warp_values, std::int64_t eights) {
  constexpr std::int64_t kMultiprocessorBlocks = 8;  // two rounds
  const int block_values = kPackWarps * warp_values;
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(kMultiprocessorBlocks * num_multiprocessors() / eights, 1, (k + block_values - 1) / block_values));
}
/// Groups of eight columns that all tiles have room for.
inline std::int64_t packing_eights(const PackParams& p) {
  return (p.tile_of != nullptr ? p.columns.places : static_cast<std::int64_t>(p.columns.count) * p.columns.columns) / 8;
}

/// Eight neighbouring values as pairs in the order in which the codes of a weight of `kind` meet them (Codes::unpack()).
template <WeightKind kind>
__device__ __forceinline__ uint4 pair_up(const float (&v)[8]) {
  if constexpr (kind == WeightKind::fp8) {
    return {bf16_pair(v[0], v[2]), bf16_pair(v[1], v[3]), bf16_pair(v[4], v[6]), bf16_pair(v[5], v[7])};
  } else if constexpr (kind == WeightKind::fp4) {
    return {bf16_pair(v[0], v[4]), bf16_pair(v[1], v[5]), bf16_pair(v[2], v[6]), bf16_pair(v[3], v[7])};
  } else {
    return {bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7])};
  }
}

/// Eight neighbouring values of column `within` of a tile, from value `k` on, in pairs: one to each of four pieces.
template <WeightKind kind>
__device__ __forceinline__ void store_packed(const uint4& pairs, std::int32_t k, std::int32_t within, std::int32_t columns, bf16* tile) {
  constexpr std::int32_t codes = codes_of(kind, 16);
  const std::int32_t unit = k / (4 * codes) * (codes / 8) + k % codes / 8;
  const std::int32_t t = k / codes % 4;
  auto* words = reinterpret_cast<unsigned*>(tile + (static_cast<std::int64_t>(unit * 4) * columns + within) * 8 + 2 * t);
  words[0] = pairs.x;
  words[columns * 4] = pairs.y;
  words[columns * 8] = pairs.z;
  words[columns * 12] = pairs.w;
}

}  // namespace deepinfer::cuda
