// Linears with packed weights and the router (docs/spec/model.md 4.4, 5.5).
#include <hwy/base.h>

#include <limits>
#include <utility>

#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/rows.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/linear_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/bf16_products-inl.h"
#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

template <WeightFormat kFormat>
HWY_INLINE void pack_units_of(const PlaceWeightParams& p, Range units) {
  constexpr std::int32_t kBytes = block_bytes(kFormat);
  const std::int32_t num_blocks = p.k / kUnitDepth;
  const std::int64_t row_bytes = std::int64_t{num_blocks} * (kBytes / kUnit);
  for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
    const std::uint8_t* rows = p.from.codes + unit * kUnit * row_bytes;
    std::uint8_t* out = p.codes + unit * kUnit * row_bytes;
    for (std::int32_t block = 0; block < num_blocks; ++block) {
      pack_unit_block<kFormat>(rows + block * (kBytes / kUnit), row_bytes, kUnit, out + block * kBytes);
    }
    for (std::int64_t i = 0; kFormat == WeightFormat::fp4 && i < std::int64_t{kUnit} * num_blocks; ++i) {
      p.scales[unit * kUnit * num_blocks + i] = p.from.scales[(unit * kUnit + i % kUnit) * num_blocks + i / kUnit];
    }
  }
}

void pack_units(const PlaceWeightParams& p, Range units) {
  p.from.format == WeightFormat::fp8 ? pack_units_of<WeightFormat::fp8>(p, units) : pack_units_of<WeightFormat::fp4>(p, units);
}

/// For units that multiply bf16.
void place_bf16([[maybe_unused]] const PlaceBf16Params& p, [[maybe_unused]] Range units) {
#if HWY_TARGET == HWY_AVX3
  auto* const words = reinterpret_cast<std::uint32_t*>(p.to);
  const PlacedBf16 placed(words, p.n, p.k);
  auto* const exponents = const_cast<std::uint8_t*>(placed.exponents);
  for (std::int32_t unit = units.begin; unit < units.end; ++unit) {
    const auto* first = reinterpret_cast<const std::uint16_t*>(row_at(p.from, unit * kUnit, p.k));
    const bf16_columns::Columns columns = {first, p.k, p.k, std::min(kUnit, p.n - unit * kUnit)};
    const std::int32_t exponent = bf16_columns::place_unit(columns, words + unit * placed.unit_words());
    exponents[unit] = static_cast<std::uint8_t>(std::min(exponent, bf16_columns::kMostExponent));
  }
#endif
}

template <ProductUnit kProductUnit>
void linear_q8(const LinearQ8Params& p, Range rows, Range columns, Scratch& scratch) {
  check(rows.size() <= kRowBlock, "a linear task has at most one block of rows");
  const std::int32_t group = columns.begin / p.n;
  check(columns.end <= (group + 1) * p.n, "a linear task has columns of one group");
  const Q8Selection source = {.x = p.x, .rows = rows.size(), .k = p.k, .first = std::int64_t{rows.begin} * p.groups + group, .stride = p.groups};
  Activations x(source, scratch);
  const std::int32_t width = p.groups * p.n;
  multiply_quantised<kProductUnit>(x, {p.weight}, columns, Output<bf16>{row_at(p.y, rows.begin, width) + columns.begin, width}, scratch);
}

/// What a task of a linear computes.
struct Block {
  Range rows;
  Range columns;
};

/// Sums of a few columns at a time, then the bias and the one rounding.
template <ProductUnit kProductUnit>
void multiply_with_bias(const LinearBf16Params& p, Bf16Activations& x, const Bf16Units& weights, Block block, Scratch& scratch) {
  constexpr std::int32_t kColumns = 8 * kTileColumns;
  float* sums = scratch.take<float>(static_cast<std::int64_t>(x.rows()) * kColumns);
  for (std::int32_t c = block.columns.begin; c < block.columns.end; c += kColumns) {
    const Range part = {c, std::min(c + kColumns, block.columns.end)};
    multiply_bf16<kProductUnit>(x, weights, part, Output<float>{sums, kColumns}, scratch);
    for (std::int32_t r = 0; r < x.rows(); ++r) {
      for (std::int32_t i = 0; i < part.size(); ++i) {
        const float value = row_at(sums, r, kColumns)[i] + to_float(p.bias[c + i]);
        const std::int64_t place = static_cast<std::int64_t>(block.rows.begin + r) * p.n + c + i;
        p.y_f32 != nullptr ? put(value, p.y_f32 + place) : put(value, p.y_bf16 + place);
      }
    }
  }
}

template <ProductUnit kProductUnit>
void linear_bf16(const LinearBf16Params& p, Range rows, Range columns, Scratch& scratch) {
  check(rows.size() <= kRowBlock, "a linear task has at most one block of rows");
  const bool is_listed = p.row_index != nullptr;
  Bf16Activations x({is_listed ? p.x : row_at(p.x, rows.begin, p.k), rows.size(), p.k, is_listed ? p.row_index + rows.begin : nullptr}, scratch);
  const Bf16Units weights(p.weight, p.n, p.k);
  if (p.bias != nullptr) {
    multiply_with_bias<kProductUnit>(p, x, weights, {rows, columns}, scratch);
  } else if (p.y_f32 != nullptr) {
    multiply_bf16<kProductUnit>(x, weights, columns, Output<float>{row_at(p.y_f32, rows.begin, p.n) + columns.begin, p.n}, scratch);
  } else {
    multiply_bf16<kProductUnit>(x, weights, columns, Output<bf16>{row_at(p.y_bf16, rows.begin, p.n) + columns.begin, p.n}, scratch);
  }
}

/// The `count` largest of `keys`, ties to the smaller index; chosen is filled in rank order. NaN must have been replaced.
inline void largest_keys(const float* keys, std::int32_t num_keys, std::int32_t count, std::int32_t* chosen) {
  std::int32_t found = 0;
  for (std::int32_t i = 0; i < num_keys; ++i) {
    if (found == count && !(keys[i] > keys[chosen[found - 1]])) {
      continue;
    }
    std::int32_t place = found < count ? found++ : count - 1;
    for (; place > 0 && keys[i] > keys[chosen[place - 1]]; --place) {
      chosen[place] = chosen[place - 1];
    }
    chosen[place] = i;
  }
}

/// Logits in place to scores sqrt(softplus(logit)); false when a logit is not finite.
inline bool score_experts(float* logits, std::int32_t padded, std::int32_t num_experts) {
  bool finite = true;
  for (std::int32_t e = 0; e < num_experts; ++e) {
    finite = finite && std::isfinite(logits[e]);
  }
  for (std::int32_t e = 0; e < padded; e += kLanes) {
    store(hn::Sqrt(softplus(load(logits + e))), logits + e);
  }
  return finite;
}

template <ProductUnit kProductUnit>
void route(const RouteParams& p, Range rows, Scratch& scratch) {
  check(rows.size() <= kRowBlock, "a routing task has at most one block of rows");
  const std::int32_t width = (p.num_experts + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  float* scores = scratch.take<float>(static_cast<std::int64_t>(rows.size()) * width);
  float* keys = scratch.take<float>(p.num_experts);
  std::fill_n(scores, static_cast<std::int64_t>(rows.size()) * width, 0.0F);
  Bf16Activations x({row_at(p.u, rows.begin, p.hidden), rows.size(), p.hidden}, scratch);
  multiply_bf16<kProductUnit>(x, Bf16Units(p.weight, p.num_experts, p.hidden), {0, p.num_experts}, Output<float>{scores, width}, scratch);
  for (std::int32_t r = 0; r < rows.size(); ++r) {
    const std::int64_t row = rows.begin + r;
    float* score = row_at(scores, r, width);
    const bool finite = score_experts(score, width, p.num_experts);
    const float* bias = p.is_image != nullptr && p.is_image[row] != 0 ? p.bias_image : p.bias;
    for (std::int32_t e = 0; e < p.num_experts; ++e) {
      const float key = score[e] + bias[e];
      keys[e] = std::isnan(key) ? -std::numeric_limits<float>::infinity() : key;
    }
    std::int32_t* chosen = row_at(p.expert, row, p.top_k);
    largest_keys(keys, p.num_experts, p.top_k, chosen);
    std::sort(chosen, chosen + p.top_k);
    float sum = 0;
    for (std::int32_t i = 0; i < p.top_k; ++i) {
      sum += score[chosen[i]];
    }
    for (std::int32_t i = 0; i < p.top_k; ++i) {
      const float weight = score[chosen[i]] / (sum + 1e-20F) * p.routed_scaling;
      row_at(p.expert_weight, row, p.top_k)[i] = finite ? weight : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

template <ProductUnit kProductUnit>
LinearKernels linear_kernels_of() {
  return {pack_units, place_bf16, linear_q8<kProductUnit>, linear_bf16<kProductUnit>, route<kProductUnit>};
}

LinearKernels make_linear_kernels(ProductUnit unit) {
  switch (unit) {
    case ProductUnit::vector:
      return linear_kernels_of<ProductUnit::vector>();
    case ProductUnit::pairs:
      return linear_kernels_of<ProductUnit::pairs>();
    case ProductUnit::matrix:
      return linear_kernels_of<ProductUnit::matrix>();
  }
  std::unreachable();
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_linear_kernels);
LinearKernels linear_kernels(ProductUnit unit) { return HWY_DYNAMIC_DISPATCH(make_linear_kernels)(unit); }
}  // namespace deepinfer::cpu
#endif
