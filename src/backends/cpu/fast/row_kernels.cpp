// Norms, quantisation, rotation and the rows that later queries read (docs/spec/model.md 4.3-4.6, 5.4, 9.1).
#include "backends/cpu/cache_rows.h"
#include "backends/cpu/fast/amx.h"
#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/fast/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/row_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

void rms_norm(const RmsNormParams& p, Range rows, Scratch& scratch) {
  float* y = scratch.take<float>(p.width);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    rms_norm_values(row_at(p.x, r, p.x_stride == 0 ? p.width : p.x_stride), p.weight, p.width, p.norm_eps, y);
    if (p.y != nullptr) {
      store_values(y, p.width, row_at(p.y, r, p.width));
    }
    if (p.q8.codes != nullptr) {
      quantise_q8_row(y, p.width, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
    }
  }
}

void quantise(const QuantiseParams& p, Range rows, Scratch& scratch) {
  float* values = scratch.take<float>(p.width);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const bf16* x = row_at(p.x, r, p.width);
    for (std::int32_t i = 0; i < p.width; i += kLanes) {
      store(load(x + i), values + i);
    }
    quantise_q8_row(values, p.width, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
  }
}

void rotate(const RotateParams& p, Range rows, Scratch&) {
  const std::int32_t half = p.rope_dim / 2;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      bf16* x = row_at(p.x, r * p.heads + head, p.head_dim) + (p.head_dim - p.rope_dim);
      rotate_row<Direction::forward>(x, p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim);
    }
  }
}

/// Rotates the tail of `row` (bf16, in place) and widens all of it to `values`.
inline void rotate_and_widen(bf16* row, std::int32_t width, const RopeTable& rope, std::int64_t r, std::int32_t rope_dim, float* values) {
  const std::int32_t half = rope_dim / 2;
  rotate_row<Direction::forward>(row + (width - rope_dim), rope.cos + r * half, rope.sin + r * half, rope_dim);
  for (std::int32_t i = 0; i < width; i += kLanes) {
    store(load(row + i), values + i);
  }
}

void window_rows(const WindowRowsParams& p, Range rows, Scratch& scratch) {
  float* values = scratch.take<float>(p.head_dim);
  bf16* row = scratch.take<bf16>(p.head_dim);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    rms_norm_values(row_at(p.x, r, p.head_dim), p.weight, p.head_dim, p.norm_eps, values);
    store_values(values, p.head_dim, row);
    rotate_and_widen(row, p.head_dim, p.rope, r, p.rope_dim, values);
    std::uint8_t* record = row_at(p.own, r, window_record_bytes(p.head_dim));
    quantise_q8_row(values, p.head_dim, record, record + p.head_dim);
  }
}

void compress_pairs(const CompressPairsParams& p, Range groups, Scratch&) {
  for (std::int64_t g = groups.begin; g < groups.end; ++g) {
    const std::int64_t row = p.group_row[g];
    const GatedRow first = row_before(p, row);
    const GatedRow second = {row_at(p.gate, row, p.head_dim), row_at(p.value, row, p.head_dim)};
    bf16* pooled = row_at(p.pooled, g, p.head_dim);
    for (std::int32_t c = 0; c < p.head_dim; c += kLanes) {
      const VF g0 = load(first.gate + c);
      const VF g1 = load(second.gate + c);
      const VF peak = hn::Max(g0, g1);
      const VF a = exp(hn::Sub(g0, peak));
      const VF b = exp(hn::Sub(g1, peak));
      const VF sum = fma(b, load(second.value + c), hn::Mul(a, load(first.value + c)));
      store(hn::Div(sum, hn::Add(a, b)), pooled + c);
    }
  }
}

void store_index_keys(const StoreIndexKeysParams& p, Range rows, Scratch& scratch) {
  const std::int32_t code_bytes = p.index_dim / 2;
  const std::int32_t scale_bytes = p.index_dim / kQ4IndexGroup;
  float* values = scratch.take<float>(p.index_dim);
  bf16* key = scratch.take<bf16>(p.index_dim);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    if (p.row_place[r] < 0) {
      continue;
    }
    rms_norm_values(row_at(p.x, r, p.index_dim), p.weight, p.index_dim, p.norm_eps, values);
    store_values(values, p.index_dim, key);
    rotate_and_widen(key, p.index_dim, p.rope, r, p.rope_dim, values);
    const std::int64_t block = p.row_place[r] / p.rows_per_block;
    const std::int64_t place = p.row_place[r] % p.rows_per_block;
    std::uint8_t* codes = p.keys + block * p.rows_per_block * index_key_bytes(p.index_dim);
    std::uint8_t* scales = codes + static_cast<std::int64_t>(p.rows_per_block) * code_bytes;
    quantise_q4_index_row(values, p.index_dim, codes + place * code_bytes, scales + place * scale_bytes);
  }
}

void store_compressed(const StoreCompressedParams& p, Range rows, Scratch& scratch) {
  float* values = scratch.take<float>(p.head_dim);
  bf16* row = scratch.take<bf16>(p.head_dim);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    if (p.row_place[r] < 0) {
      continue;
    }
    std::copy_n(row_at(p.x, r, p.head_dim), p.head_dim, row);
    rotate_and_widen(row, p.head_dim, p.rope, r, p.rope_dim, values);
    std::uint8_t* record = row_at(p.compressed, p.row_place[r], compressed_record_bytes(p.head_dim));
    quantise_q4_kv_row(values, p.head_dim, record, record + p.head_dim / 2);
  }
}

void add_rows(const AddRowsParams& p, Range rows) {
  const float* x = row_at(p.x, rows.begin, p.width);
  float* y = row_at(p.y, rows.begin, p.width);
  const std::int64_t count = std::int64_t{rows.size()} * p.width;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(hn::Add(load(y + i), load(x + i)), y + i);
  }
  for (; i < count; ++i) {
    y[i] += x[i];
  }
}

RowKernels make_row_kernels() {
  return {rms_norm, quantise, rotate, window_rows, compress_pairs, store_index_keys, store_compressed, add_rows};
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }
bool target_has_units() { return HWY_TARGET == HWY_AVX3; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(target_name);
std::string_view instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }
HWY_EXPORT(target_has_units);
ProductUnit best_product_unit() {
  if (!HWY_DYNAMIC_DISPATCH(target_has_units)() || !pairs::is_usable()) {
    return ProductUnit::vector;
  }
  return amx::is_usable() ? ProductUnit::matrix : ProductUnit::pairs;
}
HWY_EXPORT(make_row_kernels);
RowKernels row_kernels() { return HWY_DYNAMIC_DISPATCH(make_row_kernels)(); }
}  // namespace deepinfer::cpu
#endif
