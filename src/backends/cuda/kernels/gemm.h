// Matrix products y[column, n] = sum over k of weight[n, k] x[column, k] with bf16 tensor-core instructions: what they take and the order
// in which they want activations. Columns are rows of the step. Not here: the kernels (gemm.cu).
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

/// One product or many with equal shape. Device pointers.
struct GemmParams {
  std::int32_t n = 0, k = 0;
  // The weight: one tensor whose rows are cut into groups of n, or one of experts[...] (part 0: w1, 1: w3, 2: w2; two groups are
  // parts 0 and 1).
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  const ExpertWeights* experts = nullptr;
  std::int32_t part = 0;
  // Columns: all of [0, num_columns), or tiles of the columns that chose an expert.
  std::int32_t num_columns = 0;
  const std::int32_t* num_tiles = nullptr;
  const int4* tiles = nullptr;          // expert, first column, columns
  const std::int32_t* x_row = nullptr;  // row of x of a column; null: the column
  const bf16* x = nullptr;              // in the order of x_place()
  std::int64_t x_stride = 0;
  bf16* y_bf16 = nullptr;  // [column, groups * n]
  float* y_f32 = nullptr;
  std::int64_t y_stride = 0;
  const bf16* bias = nullptr;  // [n] or null; one group only
};

/// Columns a tile should have when about `columns` share a weight: 8, 16, 32 or 128.
[[nodiscard]] int tile_columns_for(int columns);

/// y = w x for all columns of p in tiles of `tile_columns`; gridDim.z = groups. Expert products pass the most tiles there can be.
void launch_gemm(WeightKind kind, const GemmParams& p, int tile_columns, int num_tiles, int groups, cudaStream_t stream);

}  // namespace deepinfer::cuda
