// Rows that later queries read: window rows and rings, pooled pairs, index keys, compressed rows (docs/model.md 5.4, 9).
#include <algorithm>
#include <vector>

#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

/// Gate and value of one token at one channel count: two rows of head_dim floats.
struct GatedRow {
  const float* gate;
  const float* value;
};

float* tail_slot(const CompressPairsParams& p, std::int64_t chunk, std::int64_t position) {
  const std::int64_t slot = p.chunks.slot[chunk];
  return p.tail + (slot * p.tail_rows + position % p.tail_rows) * 2 * p.head_dim;
}

/// The row before `row` in the same request: of this step, or from the tail.
GatedRow row_before(const CompressPairsParams& p, std::int64_t row) {
  const std::int64_t chunk = p.rows.chunk[row];
  if (row > p.chunks.first_row[chunk]) {
    return {row_at(p.gate, row - 1, p.head_dim), row_at(p.value, row - 1, p.head_dim)};
  }
  const float* stored = tail_slot(p, chunk, p.rows.position[row] - 1);
  return {stored, stored + p.head_dim};
}

void store_tail(const CompressPairsParams& p, std::int64_t chunk) {
  const std::int64_t count = p.chunks.num_rows[chunk];
  for (std::int64_t i = std::max<std::int64_t>(0, count - p.tail_rows); i < count; ++i) {
    const std::int64_t row = p.chunks.first_row[chunk] + i;
    float* slot = tail_slot(p, chunk, p.chunks.first_position[chunk] + i);
    std::copy_n(row_at(p.gate, row, p.head_dim), p.head_dim, slot);
    std::copy_n(row_at(p.value, row, p.head_dim), p.head_dim, slot + p.head_dim);
  }
}

}  // namespace

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

void ReferenceOps::store_ring(Stream&, const StoreRingParams& p) {
  for (std::int64_t c = 0; c < p.chunks.num_chunks; ++c) {
    const std::int64_t count = p.chunks.num_rows[c];
    const std::int64_t stored = std::min<std::int64_t>({p.stored_rows[c], p.ring_rows, count});
    for (std::int64_t i = count - stored; i < count; ++i) {
      const std::int64_t place = (p.chunks.first_position[c] + i) % p.ring_rows;
      std::copy_n(row_at(p.own, p.chunks.first_row[c] + i, p.record_bytes), p.record_bytes,
                  row_at(p.ring, static_cast<std::int64_t>(p.chunks.slot[c]) * p.ring_rows + place, p.record_bytes));
    }
  }
}

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
