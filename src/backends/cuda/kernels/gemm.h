// Matrix products y[column, n] = sum over k of weight[n, k] x[column, k] with bf16 tensor-core instructions: what they take and the order
// in which they want activations. Columns are rows of the step. Not here: the kernels (gemm_mma.cu, gemm_hopper.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/ops.h"

namespace deepinfer::cuda {

enum class WeightKind : std::uint8_t { fp8, fp4, bf16 };

[[nodiscard]] constexpr WeightKind kind_of(WeightFormat format) { return format == WeightFormat::fp8 ? WeightKind::fp8 : WeightKind::fp4; }

/// Codes a lane reads at once from a vector of `bytes`.
[[nodiscard]] constexpr int codes_of(WeightKind kind, int bytes) {
  return kind == WeightKind::fp8 ? bytes : kind == WeightKind::fp4 ? 2 * bytes : bytes / 2;
}
/// Bytes of the widest vector whose step divides k.
[[nodiscard]] constexpr int vector_bytes(WeightKind kind, int k) {
  int bytes = 16;
  while (k % (4 * codes_of(kind, bytes)) != 0) {
    bytes /= 2;
  }
  return bytes;
}

/// Quantised weights lie in units (Ops::place_weight): 128 rows by 64 bytes of codes, which four lanes' vectors of 16 bytes take in one
/// step; the units of 128 rows follow each other along k. So do the scales of FP4 codes, four a row. What a block needs for a step is one
/// piece: many small copies took longer than the products. Shapes that units do not divide keep their rows.
inline constexpr int kUnitRows = 128;
inline constexpr int kUnitRowBytes = 64;
inline constexpr int kUnitBytes = kUnitRows * kUnitRowBytes;
inline constexpr int kUnitScales = 4;  // of a row
inline constexpr int kUnitScaleBytes = kUnitRows * kUnitScales;
[[nodiscard]] constexpr bool lies_in_units(WeightFormat format, std::int64_t rows, int k) {
  return rows % kUnitRows == 0 && k % (format == WeightFormat::fp8 ? kUnitRowBytes : 2 * kUnitRowBytes) == 0;
}

/// Where instructions want value k of a row of activations whose weight is `kind` with vectors of C codes.
[[nodiscard]] constexpr int x_place(WeightKind kind, int codes, int k) {
  const int step = 4 * codes;
  const int within = k % step;
  const int i = within % 8;
  int place = i;
  if (kind == WeightKind::fp8) {
    place = (i & 4) | (i & 1) << 1 | (i & 2) >> 1;  // 0 2 1 3 4 6 5 7
  } else if (kind == WeightKind::fp4) {
    place = (i & 3) << 1 | i >> 2;  // 0 4 1 5 2 6 3 7, read the other way round
  }
  return k - within + within % codes / 8 * 32 + within / codes * 8 + place;
}

/// Columns (rows of the step) cut into tiles, and the kernels that take them.
struct ColumnTiles {
  int columns = 8;  // of a tile; wide tiles of experts: at most
  int count = 0;    // of tiles, at most
  bool is_packed = false;
  bool is_wide = false;     // packed, for launch_wide_gemm()
  std::int64_t places = 0;  // of columns, over all packed tiles, at most
  /// The kernel reads activations as they are.
  [[nodiscard]] bool reads_plain() const { return !is_packed && columns <= 16; }
  /// Values of all tiles' activations when packed. Never less for more columns, so that memory for the largest step suffices for all.
  [[nodiscard]] std::int64_t values(int k) const { return places * k; }
};

/// Wide tiles are as wide as their columns, in steps: of kWideStep where they have at most kFineColumns, which one kernel does, of twice
/// that where they may have more, which another does (one that does all is too much for `ptxas`, which then runs products one by one).
inline constexpr int kWideStep = 16;
inline constexpr int kLeastWideColumns = 64;  // fewer take narrow tiles, but for experts
inline constexpr int kFineColumns = 160;      // two sets of sums, as weights with slices need
inline constexpr int kMostWideColumns = 256;
/// `most`: columns of the largest tile.
[[nodiscard]] constexpr int wide_columns(int columns, int most) {
  const int step = most <= kFineColumns ? kWideStep : 2 * kWideStep;
  return (columns + step - 1) / step * step;
}
/// Where columns lie of an expert that has `columns` of them: even parts, so that no part is nearly empty.
[[nodiscard]] constexpr int wide_part(int columns, int most) {
  const int parts = (columns + most - 1) / most;
  return parts == 0 ? most : (columns + parts - 1) / parts;
}

/// Slices of k that are summed apart and added first to last: many where few rows of a weight, and so few blocks, have to occupy the GPU.
/// It depends on the weight only, so that a column's sums do not depend on the number of columns.
inline constexpr int kSlices = 8;
inline constexpr int kManyRows = 120 * 128;  // a block a multiprocessor
[[nodiscard]] constexpr bool is_sliced(bool of_experts, int groups, int n) { return !of_experts && groups * n < kManyRows; }

/// Tiles for `num_columns` columns of weights with n rows of k values in each of `groups`.
[[nodiscard]] ColumnTiles tiles_for(WeightKind kind, int groups, int n, int k, int num_columns);
/// Tiles for columns that choose among experts: `num_columns` choices, any of `num_experts` each.
[[nodiscard]] ColumnTiles tiles_for_experts(bool is_packed, std::int64_t num_columns, int num_experts);

/// One product or many with equal shape. Device pointers.
struct GemmParams {
  std::int32_t n = 0, k = 0;
  // The weight: one tensor whose rows are cut into groups of n, or two tensors for two groups, or one of experts[...] (part 0: w1, 1: w3,
  // 2: w2; two groups are parts 0 and 1).
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* second_codes = nullptr;
  const std::uint8_t* second_scales = nullptr;
  const ExpertWeights* experts = nullptr;
  std::int32_t part = 0;
  bool in_units = false;  // see lies_in_units()
  // Columns: all of [0, num_columns), or tiles of the columns that chose an expert.
  std::int32_t num_columns = 0;
  const std::int32_t* num_tiles = nullptr;
  const int4* tiles = nullptr;   // expert, first column, columns; wide: the first of their places
  bool tiles_are_ready = false;  // no kernel that may still run writes them: they are read before the inputs are there
  // Activations. Packed: x as pack_q8() and pack_bf16() leave them. Otherwise rows `x_stride` values apart: x_q8, or x for a bf16 weight,
  // where the tiles read plain activations; else x in the order of x_place().
  const bf16* x = nullptr;
  Q8Rows x_q8;
  const std::int32_t* x_row = nullptr;  // not packed: row of x of a column; null: the column
  std::int64_t x_stride = 0;
  std::int64_t x_group = 0;  // values from a group's activations to the next one's; 0: groups share them
  bf16* y_bf16 = nullptr;    // [column, groups * n]
  float* y_f32 = nullptr;
  std::int64_t y_stride = 0;
  const bf16* bias = nullptr;  // [n] or null; one group only
};

/// y = w x for all columns of p.
void launch_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream);

/// Activations of a product before it: Q8 rows as bf16 values (exact), or bf16 rows, in the order of its kernel.
struct PackParams {
  WeightKind kind = WeightKind::fp8;
  std::int32_t k = 0, groups = 1;
  ColumnTiles columns;
  // As in GemmParams; rows lie groups * k apart.
  std::int32_t num_columns = 0;
  const std::int32_t* num_tiles = nullptr;
  const int4* tiles = nullptr;
  const std::int32_t* tile_of = nullptr;    // wide tiles of experts: the tile of each kWideStep places
  const std::int32_t* num_steps = nullptr;  // and how many of those there are
  const std::int32_t* x_row = nullptr;      // packed tiles only
  bf16* out = nullptr;                      // packed: [groups, tiles, columns * k]; otherwise [rows, groups * k]
};
void pack_q8(const PackParams& p, const Q8Rows& x, cudaStream_t stream);
void pack_bf16(const PackParams& p, const bf16* x, cudaStream_t stream);

/// Codes of a weight from rows to the order that products take (lies_in_units(), gemm_codes.cuh). Device memory, `to` not `from`.
struct PlaceCodes {
  WeightFormat format = WeightFormat::fp8;
  std::int64_t rows = 0;
  std::int32_t k = 0;
  bool in_units = false;
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
};
void place_codes(const PlaceCodes&, cudaStream_t);
/// The scales of an FP4 weight that lies in units, `words` of four to a row.
void place_scales(std::int64_t rows, std::int32_t words, const std::uint8_t* from, std::uint8_t* to, cudaStream_t);

// The kernels. gemm_mma.cu: any GPU, any shape; not packed.
void launch_mma_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream);
// gemm_hopper.cu: SM90; packed, up to 64 columns a tile.
[[nodiscard]] bool takes_warpgroups(WeightKind kind, int n, int k);  // n: rows of a group
void launch_warpgroup_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream);
// gemm_wide.cu: SM90; wide.
void launch_wide_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream);
[[nodiscard]] int num_multiprocessors();

}  // namespace deepinfer::cuda
