// Packed activations (gemm.h): where a product with warpgroup instructions looks for the values of a column.
// A packed tile is [k / 8][columns][8]: what an instruction of 16 values takes are two neighbouring pieces of 8 values of a column.
#pragma once

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"

namespace deepinfer::cuda {

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
