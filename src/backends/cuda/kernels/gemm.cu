// Which kernel multiplies. Every kernel gives the same bits (gemm_codes.cuh), so the choice is free.
#include "backends/cuda/kernels/gemm.h"

#include <algorithm>

namespace deepinfer::cuda {
namespace {

constexpr int kFewColumns = 8;
constexpr int kManyRows = 120 * 128;

int packed_columns(std::int64_t columns) { return columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 32 ? 32 : columns <= 64 ? 64 : 128; }
int plain_columns(std::int64_t columns) { return columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 64 ? 32 : 128; }

int columns_for(bool is_packed, std::int64_t columns) { return is_packed ? packed_columns(columns) : plain_columns(columns); }

/// Columns of a tile when experts have `mean` columns each, which vary. In small tiles, turning the weight's codes is what takes time: a
/// second tile costs as much as the first, empty columns cost little. In large tiles products take it, so that empty columns cost.
int expert_columns(bool is_packed, std::int64_t mean) {
  return columns_for(is_packed, mean <= 3 ? mean : mean <= 9 ? mean + mean / 2 + 2 : mean <= 28 ? 32 : mean);
}

}  // namespace

ColumnTiles tiles_for(WeightKind kind, int groups, int n, int k, int num_columns) {
  // Few columns of a small weight: 16 rows a block occupy the GPU better than 128.
  const bool is_packed = takes_warpgroups(kind, n, k) && (num_columns > kFewColumns || groups * n >= kManyRows);
  const int columns = columns_for(is_packed, num_columns);
  return {.columns = columns, .count = (num_columns + columns - 1) / columns, .is_packed = is_packed};
}

ColumnTiles tiles_for_experts(bool is_packed, std::int64_t num_columns, int num_experts) {
  const int columns = expert_columns(is_packed, (num_columns + num_experts - 1) / num_experts);
  return {.columns = columns,
          .count = static_cast<int>(num_columns / columns + std::min<std::int64_t>(num_experts, num_columns)),
          .is_packed = is_packed};
}

void launch_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  (tiles.is_packed ? launch_warpgroup_gemm : launch_mma_gemm)(kind, p, tiles, groups, stream);
}

}  // namespace deepinfer::cuda
