// Rows that later queries read: window rows and rings, pooled pairs, index keys, compressed rows (docs/spec/model.md 5.4, 9).
#include <algorithm>
#include <vector>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
void ReferenceOps::window_rows(Stream&, const WindowRowsParams& p) {
  std::vector<bf16> w(p.head_dim);
  const std::int32_t half = p.rope_dim / 2;
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    rms_norm_row(row_at(p.x, r, p.head_dim), p.weight, p.head_dim, p.norm_eps, w.data());
    rotate_pairs(w.data() + (p.head_dim - p.rope_dim), p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim, Direction::forward);
    std::uint8_t* record = row_at(p.own, r, window_record_bytes(p.head_dim));
    quantise_q8(w.data(), p.head_dim, record, record + p.head_dim);
  }
}

void ReferenceOps::store_ring(Stream&, const StoreRingParams& p) { copy_to_ring(p); }

void ReferenceOps::compress_pairs(Stream&, const CompressPairsParams& p) {
  for (std::int64_t g = 0; g < p.num_groups; ++g) {
    const std::int64_t row = p.group_row[g];
    const GatedRow first = row_before(p, row);
    const GatedRow second = {row_at(p.gate, row, p.head_dim), row_at(p.value, row, p.head_dim)};
    for (std::int32_t c = 0; c < p.head_dim; ++c) {
      const double peak = std::max(first.gate[c], second.gate[c]);
      const double a = std::exp(first.gate[c] - peak);
      const double b = std::exp(second.gate[c] - peak);
      row_at(p.pooled, g, p.head_dim)[c] = round_bf16((a * first.value[c] + b * second.value[c]) / (a + b));
    }
  }
  for (std::int64_t chunk = 0; chunk < p.chunks.num_chunks; ++chunk) {
    store_tail(p, chunk);
  }
}

void ReferenceOps::store_index_keys(Stream&, const StoreIndexKeysParams& p) {
  std::vector<bf16> key(p.index_dim);
  const std::int32_t half = p.rope_dim / 2;
  const std::int32_t code_bytes = p.index_dim / 2;
  const std::int32_t scale_bytes = p.index_dim / kQ4IndexGroup;
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    if (p.row_place[r] < 0) {
      continue;
    }
    rms_norm_row(row_at(p.x, r, p.index_dim), p.weight, p.index_dim, p.norm_eps, key.data());
    rotate_pairs(key.data() + (p.index_dim - p.rope_dim), p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim, Direction::forward);
    const std::int64_t block = p.row_place[r] / p.rows_per_block;
    const std::int64_t place = p.row_place[r] % p.rows_per_block;
    std::uint8_t* codes = p.keys + block * p.rows_per_block * index_key_bytes(p.index_dim);
    std::uint8_t* scales = codes + static_cast<std::int64_t>(p.rows_per_block) * code_bytes;
    quantise_q4_index(key.data(), p.index_dim, codes + place * code_bytes, scales + place * scale_bytes);
  }
}

void ReferenceOps::store_compressed(Stream&, const StoreCompressedParams& p) {
  std::vector<bf16> row(p.head_dim);
  const std::int32_t half = p.rope_dim / 2;
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    if (p.row_place[r] < 0) {
      continue;
    }
    std::copy_n(row_at(p.x, r, p.head_dim), p.head_dim, row.begin());
    rotate_pairs(row.data() + (p.head_dim - p.rope_dim), p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim, Direction::forward);
    std::uint8_t* record = row_at(p.compressed, p.row_place[r], compressed_record_bytes(p.head_dim));
    quantise_q4_kv(row.data(), p.head_dim, record, record + p.head_dim / 2);
  }
}

}  // namespace deepinfer::cpu
