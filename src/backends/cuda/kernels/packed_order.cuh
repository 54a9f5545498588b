// Packed activations (gemm.h): where a product with warpgroup instructions looks for the values of a column.
// A packed tile is [k / 8][columns][8]: what an instruction of 16 values takes are two neighbouring pieces of 8 values of a column.
#pragma once

#include "backends/cuda/kernels/gemm.h"

namespace deepinfer::cuda {

/// Eight neighbouring values of column `within` of a tile, from value `k` on, to the places where the codes of a weight of `kind` meet them:
/// a pair of them in each of four pieces, in the order of Codes::unpack().
__device__ __forceinline__ void store_packed(WeightKind kind, const std::uint16_t (&values)[8], std::int32_t k, std::int32_t within,
                                             std::int32_t columns, bf16* tile) {
  const std::int32_t codes = codes_of(kind, 16);
  const std::int32_t unit = k / (4 * codes) * (codes / 8) + k % codes / 8;
  const std::int32_t t = k / codes % 4;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int first = kind == WeightKind::fp8 ? (pair & 2) * 2 + (pair & 1) : kind == WeightKind::fp4 ? pair : 2 * pair;
    const int second = first + (kind == WeightKind::fp8 ? 2 : kind == WeightKind::fp4 ? 4 : 1);
    const unsigned word = values[0];
    unsigned low = word;
    unsigned high = word;
#pragma unroll
    for (int e = 0; e < 8; ++e) {  // constant indices keep the values in registers
      low = e == first ? values[e] : low;
      high = e == second ? values[e] : high;
    }
    *reinterpret_cast<unsigned*>(tile + (static_cast<std::int64_t>(unit * 4 + pair) * columns + within) * 8 + 2 * t) = low | high << 16;
  }
}

}  // namespace deepinfer::cuda
