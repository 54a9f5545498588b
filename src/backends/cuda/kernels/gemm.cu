// Which kernel multiplies. Every kernel gives the same bits (gemm_codes.cuh), so the choice is free.
#include <algorithm>

#include "backends/cuda/kernels/gemm.h"

namespace deepinfer::cuda {
namespace {

constexpr int kFewColumns = 8;
constexpr int kNarrowColumns = 64;  // most of a tile that is not wide

int packed_columns(std::int64_t columns) { return columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 32 ? 32 : kNarrowColumns; }
int plain_columns(std::int64_t columns) { return columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 64 ? 32 : 128; }

/// Columns of a tile when experts have `mean` columns each, which vary. In small tiles, turning the weight's codes is what takes time: a
/// second tile costs as much as the first, empty columns cost little.
int expert_columns(bool is_packed, std::int64_t mean) {
  const std::int64_t columns = mean <= 3 ? mean : mean <= 9 ? mean + mean / 2 + 2 : mean <= 28 ? 32 : mean;
  return is_packed ? packed_columns(columns) : plain_columns(columns);
}

ColumnTiles even_tiles(int columns, int count, bool is_packed) {
  return {.columns = columns, .count = count, .is_packed = is_packed, .places = std::int64_t{columns} * count};
}

/// Wide tiles that take the fewest cycles: blocks come in rounds of one a multiprocessor; a tile costs its products, four cycles a column
/// and group of 64 values, or turning codes where that takes longer, and what begins and ends it.
ColumnTiles wide_tiles(bool sliced, int row_tiles, int k, int num_columns) {
  constexpr std::int64_t kCyclesOfColumn = 4;
  constexpr std::int64_t kCyclesOfCodes = 450;
  constexpr std::int64_t kCyclesOfTile = 1500;
  const int multiprocessors = num_multiprocessors();
  const int most = sliced ? kFineColumns : kMostWideColumns;
  std::int64_t least = 0;
  ColumnTiles best{.is_packed = true, .is_wide = true};
  for (int columns = most; columns >= kLeastWideColumns; columns -= kWideStep) {
    if (columns != wide_columns(columns, columns)) {
      continue;
    }
    const int count = (num_columns + columns - 1) / columns;
    const std::int64_t rounds = (static_cast<std::int64_t>(row_tiles) * count + multiprocessors - 1) / multiprocessors;
    const std::int64_t cycles = rounds * (std::max(columns * kCyclesOfColumn, kCyclesOfCodes) * (k / 64) + kCyclesOfTile);
    if (best.count == 0 || cycles < least) {
      least = cycles;
      best.count = count;
    }
  }
  const int columns = (num_columns + best.count - 1) / best.count;
  best.columns = wide_columns(columns, columns);
  best.places = num_columns + std::int64_t{kWideStep} * (num_columns / kLeastWideColumns + 1);
  return best;
}

}  // namespace

ColumnTiles tiles_for(WeightKind kind, int groups, int n, int k, int num_columns) {
  // Few columns of a small weight: 16 rows a block occupy the GPU better than 128.
  const bool sliced = is_sliced(false, groups, n);
  if (takes_warpgroups(kind, n, k) && (num_columns > kFewColumns || !sliced)) {
    // Wide tiles take all slices in one block: they have to be enough for half the GPU.
    const int row_tiles = groups * ((n + 127) / 128);
    const bool occupies = !sliced || 2 * row_tiles * (num_columns / 128) >= num_multiprocessors();
    if (num_columns > kNarrowColumns && occupies) {
      return wide_tiles(sliced, row_tiles, k, num_columns);
    }
    const int columns = packed_columns(num_columns);
    return even_tiles(columns, (num_columns + columns - 1) / columns, true);
  }
  const int columns = plain_columns(num_columns);
  return even_tiles(columns, (num_columns + columns - 1) / columns, false);
}

ColumnTiles tiles_for_experts(bool is_packed, std::int64_t num_columns, int num_experts) {
  constexpr std::int64_t kWideMean = 28;
  const std::int64_t mean = (num_columns + num_experts - 1) / num_experts;
  const std::int64_t with_columns = std::min<std::int64_t>(num_experts, num_columns);
  if (is_packed && mean > kWideMean) {
    const int most = mean + mean / 8 <= kFineColumns ? kFineColumns : kMostWideColumns;  // they vary
    const std::int64_t count = num_columns / most + with_columns;
    const std::int64_t step = wide_columns(1, most);
    const std::int64_t narrow =
        tiles_for_experts(true, kWideMean * num_experts, num_experts).places;  // places are never less for more columns
    return {.columns = most,
            .count = static_cast<int>(count),
            .is_packed = true,
            .is_wide = true,
            .places = std::max(narrow, (num_columns / step + count) * step)};
  }
  const int columns = expert_columns(is_packed, mean);
  return even_tiles(columns, static_cast<int>(num_columns / columns + with_columns), is_packed);
}

int num_multiprocessors() {
  static const int count = [] {
    int device = 0;
    int out = 132;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&out, cudaDevAttrMultiProcessorCount, device);
    return out;
  }();
  return count;
}

void launch_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  (tiles.is_wide ? launch_wide_gemm : tiles.is_packed ? launch_warpgroup_gemm : launch_mma_gemm)(kind, p, tiles, groups, stream);
}

}  // namespace deepinfer::cuda
