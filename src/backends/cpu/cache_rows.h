// Where stored rows live: window rings, pair tails, blocks of compressed rows, Engram tables. Copies are the same for every kernel set.
// Not here: arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/rows.h"

namespace deepinfer::cpu {

/// Gate and value of one token: head_dim floats each.
struct GatedRow {
  const float* gate;
  const float* value;
};

[[nodiscard]] inline float* tail_slot(const CompressPairsParams& p, std::int64_t chunk, std::int64_t position) {
  const std::int64_t slot = p.chunks.slot[chunk];
  return p.tail + (slot * p.tail_rows + position % p.tail_rows) * 2 * p.head_dim;
}

/// The row before `row` in the same request: of this step, or from the tail.
[[nodiscard]] inline GatedRow row_before(const CompressPairsParams& p, std::int64_t row) {
  const std::int64_t chunk = p.rows.chunk[row];
  if (row > p.chunks.first_row[chunk]) {
    return {row_at(p.gate, row - 1, p.head_dim), row_at(p.value, row - 1, p.head_dim)};
  }
  const float* stored = tail_slot(p, chunk, p.rows.position[row] - 1);
  return {stored, stored + p.head_dim};
}

inline void store_tail(const CompressPairsParams& p, std::int64_t chunk) {
  const std::int64_t count = p.chunks.num_rows[chunk];
  for (std::int64_t i = std::max<std::int64_t>(0, count - p.tail_rows); i < count; ++i) {
    const std::int64_t row = p.chunks.first_row[chunk] + i;
    float* slot = tail_slot(p, chunk, p.chunks.first_position[chunk] + i);
    std::copy_n(row_at(p.gate, row, p.head_dim), p.head_dim, slot);
    std::copy_n(row_at(p.value, row, p.head_dim), p.head_dim, slot + p.head_dim);
  }
}

/// StoreRingParams: the last rows of each chunk to their places.
inline void copy_to_ring(const StoreRingParams& p) {
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

/// The record of the window row at `position`, for a query of `chunk`: of this step or from the ring.
[[nodiscard]] inline const std::uint8_t* window_record(const AttendParams& p, std::int64_t chunk, std::int64_t position) {
  const std::int64_t first_position = p.chunks.first_position[chunk];
  const std::int32_t record_bytes = window_record_bytes(p.head_dim);
  if (position >= first_position) {
    return row_at(p.own, p.chunks.first_row[chunk] + position - first_position, record_bytes);
  }
  return row_at(p.ring, static_cast<std::int64_t>(p.chunks.slot[chunk]) * p.ring_rows + position % p.ring_rows, record_bytes);
}

/// The record of compressed row `j` of the request of `chunk`.
[[nodiscard]] inline const std::uint8_t* compressed_record(const AttendParams& p, std::int64_t chunk, std::int64_t j) {
  const std::int64_t block = row_at(p.chunks.block_table, chunk, p.chunks.max_blocks)[j / p.rows_per_block];
  return row_at(p.compressed, block * p.rows_per_block + j % p.rows_per_block, compressed_record_bytes(p.head_dim));
}

/// Codes and scales of one index key.
struct IndexKey {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
};

[[nodiscard]] inline IndexKey index_key(const IndexSelectParams& p, std::int64_t chunk, std::int64_t j) {
  const std::int64_t block = row_at(p.chunks.block_table, chunk, p.chunks.max_blocks)[j / p.rows_per_block];
  const std::int64_t place = j % p.rows_per_block;
  const std::int64_t code_bytes = p.index_dim / 2;
  const std::uint8_t* codes = p.keys + block * p.rows_per_block * index_key_bytes(p.index_dim);
  const std::uint8_t* scales = codes + p.rows_per_block * code_bytes;
  return {codes + place * code_bytes, scales + place * (p.index_dim / kQ4IndexGroup)};
}

/// One row of an Engram table (entry i of row_id) to its place among the activations; zeros for -1.
inline void gather_engram_row(const EngramGatherParams& p, std::int64_t i) {
  constexpr std::uint8_t kUnitScale = 127;  // 2^0
  const std::int32_t scales_per_row = p.row_dim / kQ8Group;
  std::uint8_t* codes = row_at(p.e.codes, i, p.row_dim);
  std::uint8_t* scales = row_at(p.e.scales, i, scales_per_row);
  if (p.row_id[i] < 0) {
    std::fill_n(codes, p.row_dim, std::uint8_t{0});
    std::fill_n(scales, scales_per_row, kUnitScale);
  } else {
    std::copy_n(row_at(p.codes, p.row_id[i], p.row_dim), p.row_dim, codes);
    std::copy_n(row_at(p.scales, p.row_id[i], scales_per_row), scales_per_row, scales);
  }
}

}  // namespace deepinfer::cpu
