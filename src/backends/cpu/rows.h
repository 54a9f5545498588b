// Small pieces of single rows that several operations share, in the plain form: addressing, RMSNorm, rotation, weight decoding.
// Not here: the operations themselves.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "backends/cpu/block_codecs.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

/// Row `row` of a matrix with `width` elements per row; the product does not overflow.
template <class T>
[[nodiscard]] constexpr T* row_at(T* base, std::int64_t row, std::int64_t width) {
  return base + row * width;
}

/// What row `r` begins with: its token's embedding, or its row of an image.
[[nodiscard]] inline const bf16* embedding_row(const EmbedParams& p, std::int64_t r) {
  return p.is_image != nullptr && p.is_image[r] != 0 ? row_at(p.image_rows, r, p.hidden) : row_at(p.table, p.token[r], p.hidden);
}

[[nodiscard]] inline bf16 round_bf16(double x) { return to_bf16(static_cast<float>(x)); }

/// y = bf16(x * rsqrt(mean(x^2) + eps) * weight) over `width` values (docs/spec/model.md 4.5). y may be x.
inline void rms_norm_row(const bf16* x, const bf16* weight, std::int32_t width, float eps, bf16* y) {
  double sum = 0;
  for (std::int32_t i = 0; i < width; ++i) {
    sum += static_cast<double>(to_float(x[i])) * to_float(x[i]);
  }
  const double inverse = 1.0 / std::sqrt(sum / width + eps);
  for (std::int32_t i = 0; i < width; ++i) {
    y[i] = round_bf16(to_float(weight[i]) * (to_float(x[i]) * inverse));
  }
}

enum class Direction : std::uint8_t { forward, inverse };

/// Rotates `rope_dim` values in place as interleaved pairs (docs/spec/model.md 4.6). cos, sin: [rope_dim / 2].
inline void rotate_pairs(bf16* x, const float* cos, const float* sin, std::int32_t rope_dim, Direction direction) {
  for (std::int32_t i = 0; i < rope_dim / 2; ++i) {
    const float c = cos[i];
    const float s = direction == Direction::forward ? sin[i] : -sin[i];
    const float x0 = to_float(x[2 * i]);
    const float x1 = to_float(x[2 * i + 1]);
    x[2 * i] = to_bf16(std::fma(x0, c, -(x1 * s)));
    x[2 * i + 1] = to_bf16(std::fma(x0, s, x1 * c));
  }
}

/// Head `head` of row `r`, rotated in place, element i with element i + head_dim / 2 (docs/spec/model.md 6).
inline void rotate_half_row(const RotateHalvesParams& p, std::int64_t r, std::int64_t head) {
  const std::int32_t half = p.head_dim / 2;
  bf16* x = row_at(row_at(p.x, r, p.x_stride), head, p.head_dim);
  for (std::int32_t i = 0; i < half; ++i) {
    const float c = p.cos[r * half + i];
    const float s = p.sin[r * half + i];
    const float a = to_float(x[i]);
    const float b = to_float(x[half + i]);
    x[i] = to_bf16(std::fma(a, c, -(b * s)));
    x[half + i] = to_bf16(std::fma(a, s, b * c));
  }
}

/// bf16(x / 2 * (1 + erf(x / sqrt(2)))); erfc does not cancel where the sum is small.
[[nodiscard]] inline bf16 gelu_value(bf16 x) {
  const double value = to_float(x);
  return round_bf16(0.5 * value * std::erfc(-value * std::sqrt(0.5)));
}

/// One row of gather_cells.
inline void gather_cell(const GatherCellsParams& p, std::int64_t cell) {
  const std::int32_t columns = (p.grid_columns + p.side - 1) / p.side;
  const std::int64_t top = cell / columns * p.side;
  const std::int64_t left = cell % columns * p.side;
  bf16* out = row_at(p.y, cell, std::int64_t{p.width} * p.side * p.side);
  for (std::int64_t dy = 0; dy < p.side; ++dy) {
    for (std::int64_t dx = 0; dx < p.side; ++dx) {
      const bool is_inside = top + dy < p.grid_rows && left + dx < p.grid_columns;
      const bf16* patch = is_inside ? row_at(p.x, (top + dy) * p.grid_columns + left + dx, p.width) : nullptr;
      for (std::int64_t c = 0; c < p.width; ++c) {
        out[(c * p.side + dy) * p.side + dx] = is_inside ? patch[c] : bf16{};
      }
    }
  }
}

/// One line of the rope table: the angle is the fp32 product, its cosine and sine are rounded once.
inline void rope_row(const RopeTableParams& p, std::int64_t r) {
  for (std::int32_t i = 0; i < p.half_dim; ++i) {
    const float angle = static_cast<float>(p.position[r]) * p.frequency[i];
    p.cos[r * p.half_dim + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    p.sin[r * p.half_dim + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

/// A Q8 row as values.
[[nodiscard]] inline std::vector<float> decode_q8(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width) {
  std::vector<float> out(width);
  for (std::int32_t i = 0; i < width; ++i) {
    out[i] = q8_value(codes, scales, i);
  }
  return out;
}

/// Element (row, column) of a quantised weight [.., k]; exact.
[[nodiscard]] inline float weight_value(const QuantWeight& weight, std::int32_t k, std::int64_t row, std::int64_t column) {
  if (weight.format == WeightFormat::fp8) {
    const std::int64_t scales_per_row = (k + kWeightBlock - 1) / kWeightBlock;
    const std::uint8_t scale = weight.scales[row / kWeightBlock * scales_per_row + column / kWeightBlock];
    return e4m3_to_float(weight.codes[row * k + column]) * ue8m0_to_float(scale);
  }
  return q4_index_value(weight.codes + row * (k / 2), weight.scales + row * (k / kWeightBlock), column);
}

}  // namespace deepinfer::cpu
