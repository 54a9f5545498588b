// Experts (docs/spec/model.md 5.5): gate and up projections with the activation, the down projection, the sum over a row's experts.
#include <algorithm>
#include <limits>
#include <utility>

#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/rows.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/moe_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// bf16(silu(min(g, limit)) * clamp(t, -limit, limit) * weight), g and t rounded to bf16 first; NaN stays NaN.
HWY_INLINE VF activate(VF gate, VF up, VF limit, VF weight) {
  const VF g = round_to_bf16(gate);
  const VF t = round_to_bf16(up);
  const VF low = hn::Neg(limit);
  const VF bounded_g = hn::IfThenElse(hn::Gt(g, limit), limit, g);
  const VF below = hn::IfThenElse(hn::Gt(t, limit), limit, t);
  const VF bounded_t = hn::IfThenElse(hn::Lt(below, low), low, below);
  const VF silu = hn::Div(bounded_g, hn::Add(hn::Set(DF(), 1.0F), exp(hn::Neg(bounded_g))));
  return round_to_bf16(hn::Mul(hn::Mul(silu, bounded_t), weight));
}

/// A weight and the one that is multiplied after it, which may be null: those of an expert are short and lie far away, and a product that
/// begins anew has nothing else to do. What the product does not ask for piece by piece is asked for now, at most the first bytes of it.
template <ProductUnit kProductUnit>
HWY_INLINE QuantFactor before(const QuantWeight& weight, const QuantWeight* next, std::int64_t num_values, std::int32_t rows) {
  constexpr std::int64_t kMostBytes = 8192, kMostBytesByPieces = 16384;
  const auto code_bytes = [&](const QuantWeight& w) { return w.format == WeightFormat::fp8 ? num_values : num_values / 2; };
  if (next == nullptr) {
    return {weight};
  }
  fetch(next->scales, next->format == WeightFormat::fp8 ? 0 : std::min(num_values / kQ8Group, kMostBytes));
  if (fetches_next<kProductUnit>(rows) && code_bytes(weight) <= kMostBytesByPieces) {
    return {weight, next->codes};
  }
  fetch(next->codes, std::min(code_bytes(*next), kMostBytes));
  return {weight};
}

template <ProductUnit kProductUnit>
void gate_up(const MoeParams& p, const ExpertBatch& batch, Range pairs, Range columns, Scratch& scratch) {
  check(pairs.size() <= kRowBlock, "an expert task has at most one block of rows");
  Activations x({.x = p.x, .rows = pairs.size(), .k = p.hidden, .list = batch.row + pairs.begin}, scratch);
  const std::int64_t values = static_cast<std::int64_t>(pairs.size()) * columns.size();
  const Output<float> gate = {scratch.take<float>(values), columns.size()};
  const Output<float> up = {scratch.take<float>(values), columns.size()};
  const std::int64_t num_values = std::int64_t{p.intermediate} * p.hidden;
  const ExpertWeights& weights = *batch.weights;
  multiply_quantised<kProductUnit>(x, before<kProductUnit>(weights.w1, &weights.w3, num_values, pairs.size()), columns, gate, scratch);
  multiply_quantised<kProductUnit>(x, before<kProductUnit>(weights.w3, &weights.w2, num_values, pairs.size()), columns, up, scratch);
  const VF limit = hn::Set(DF(), p.swiglu_limit > 0 ? p.swiglu_limit : std::numeric_limits<float>::infinity());
  for (std::int32_t i = 0; i < pairs.size(); ++i) {
    const VF weight = hn::Set(DF(), batch.scale[pairs.begin + i]);
    for (std::int32_t c = 0; c < columns.size(); c += kLanes) {
      store(activate(load(gate.at(i, c)), load(up.at(i, c)), limit, weight), gate.at(i, c));
    }
    quantise_q8_row(gate.at(i, 0), columns.size(), row_at(batch.act_codes, pairs.begin + i, p.intermediate) + columns.begin,
                    row_at(batch.act_scales, pairs.begin + i, p.intermediate / kQ8Group) + columns.begin / kQ8Group);
  }
}

template <ProductUnit kProductUnit>
void down(const MoeParams& p, const ExpertBatch& batch, Range pairs, Range columns, Scratch& scratch) {
  check(pairs.size() <= kRowBlock, "an expert task has at most one block of rows");
  const Q8Rows activations = {batch.act_codes, batch.act_scales};
  Activations x({.x = activations, .rows = pairs.size(), .k = p.intermediate, .first = pairs.begin}, scratch);
  const Output<bf16> y = {row_at(batch.out, pairs.begin, p.hidden) + columns.begin, p.hidden};
  const QuantWeight* next = batch.next != nullptr ? &batch.next->w1 : nullptr;
  const std::int64_t num_values = std::int64_t{p.intermediate} * p.hidden;
  multiply_quantised<kProductUnit>(x, before<kProductUnit>(batch.weights->w2, next, num_values, pairs.size()), columns, y, scratch);
}

void combine(const MoeParams& p, const bf16* outputs, const std::int32_t* places, Range rows) {
  const std::int32_t count = p.top_k + 1;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const std::int32_t* place = row_at(places, r, count);
    for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
      VF sum = load(row_at(outputs, place[0], p.hidden) + c);
      for (std::int32_t i = 1; i < count; ++i) {
        sum = hn::Add(sum, load(row_at(outputs, place[i], p.hidden) + c));
      }
      store(sum, row_at(p.y, r, p.hidden) + c);
    }
  }
}

MoeKernels make_moe_kernels(ProductUnit unit) {
  switch (unit) {
    case ProductUnit::vector:
      return {gate_up<ProductUnit::vector>, down<ProductUnit::vector>, combine};
    case ProductUnit::pairs:
      return {gate_up<ProductUnit::pairs>, down<ProductUnit::pairs>, combine};
    case ProductUnit::matrix:
      return {gate_up<ProductUnit::matrix>, down<ProductUnit::matrix>, combine};
  }
  std::unreachable();
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_moe_kernels);
MoeKernels moe_kernels(ProductUnit unit) { return HWY_DYNAMIC_DISPATCH(make_moe_kernels)(unit); }
}  // namespace deepinfer::cpu
#endif
