// The keys of an attention query: window rows first (max_window places), then its list; where each lies.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/codecs.cuh"

namespace deepinfer::cuda {

inline constexpr std::int32_t kTileKeys = 64;  ///< keys of a tile are all window rows or all listed rows

struct Places {
  std::int32_t window = 0;  ///< multiple of kTileKeys
  std::int32_t all = 0;     ///< multiple of kTileKeys
};

__host__ __device__ constexpr std::int32_t round_up(std::int32_t x, std::int32_t unit) { return (x + unit - 1) / unit * unit; }

__host__ __device__ inline Places places_of(const AttendParams& p) {
  const std::int32_t window = round_up(p.max_window, kTileKeys);
  return {window, window + (p.list != nullptr ? round_up(p.top_k, kTileKeys) : 0)};
}

/// The record at a place of row r; null: the place is empty.
__device__ inline const std::uint8_t* record_at(const AttendParams& p, const Places& places, std::int64_t r, std::int32_t place) {
  const std::int64_t chunk = p.rows.chunk[r];
  if (place < places.window) {
    const std::int32_t t = p.window_low[r] + place;
    if (t > p.window_high[r]) {
      return nullptr;
    }
    const std::int32_t first = p.chunks.first_position[chunk];
    const std::int32_t bytes = window_record_bytes(p.head_dim);
    if (t >= first) {
      return row_at(p.own, p.chunks.first_row[chunk] + static_cast<std::int64_t>(t - first), bytes);
    }
    return row_at(p.ring, static_cast<std::int64_t>(p.chunks.slot[chunk]) * p.ring_rows + t % p.ring_rows, bytes);
  }
  const std::int32_t l = place - places.window;
  const std::int32_t j = l < p.top_k ? row_at(p.list, r, p.top_k)[l] : -1;
  if (j < 0) {
    return nullptr;
  }
  const std::int64_t block = row_at(p.chunks.block_table, chunk, p.chunks.max_blocks)[j / p.rows_per_block];
  return row_at(p.compressed, block * p.rows_per_block + j % p.rows_per_block, compressed_record_bytes(p.head_dim));
}

}  // namespace deepinfer::cuda
