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

/// Where the keys of one query lie.
class KeyTable {
 public:
  __device__ KeyTable(const AttendParams& p, std::int64_t r)
      : list_(p.list + r * p.top_k), num_listed_(p.list != nullptr ? p.top_k : 0), low_(p.window_low[r]), high_(p.window_high[r]) {
    const std::int64_t chunk = p.rows.chunk[r];
    blocks_ = row_at(p.chunks.block_table, chunk, p.chunks.max_blocks);
    first_position_ = p.chunks.first_position[chunk];
    first_row_ = p.chunks.first_row[chunk];
    slot_ = p.chunks.slot[chunk];
  }

  /// The record at a window place; null: the place is empty.
  __device__ const std::uint8_t* window_record(const AttendParams& p, std::int32_t place) const {
    const std::int32_t t = low_ + place;
    if (t > high_) {
      return nullptr;
    }
    const std::int32_t bytes = window_record_bytes(p.head_dim);
    return t >= first_position_ ? row_at(p.own, first_row_ + t - first_position_, bytes)
                                : row_at(p.ring, slot_ * p.ring_rows + t % p.ring_rows, bytes);
  }

  /// Entry l of the list, and the cache block it lies in; -1: none.
  __device__ std::int32_t listed_row(std::int32_t l) const { return l >= 0 && l < num_listed_ ? list_[l] : -1; }
  __device__ std::int32_t block_of(const AttendParams& p, std::int32_t row) const { return row < 0 ? -1 : blocks_[row / p.rows_per_block]; }
  __device__ const std::uint8_t* compressed_record(const AttendParams& p, std::int32_t row, std::int32_t block) const {
    return row < 0 ? nullptr
                   : row_at(p.compressed, static_cast<std::int64_t>(block) * p.rows_per_block + row % p.rows_per_block,
                            compressed_record_bytes(p.head_dim));
  }

  /// The record at any place; null: the place is empty.
  __device__ const std::uint8_t* record(const AttendParams& p, const Places& places, std::int32_t place) const {
    if (place < places.window) {
      return window_record(p, place);
    }
    const std::int32_t row = listed_row(place - places.window);
    return compressed_record(p, row, block_of(p, row));
  }

 private:
  const std::int32_t* list_;
  const std::int32_t* blocks_ = nullptr;
  std::int32_t num_listed_, low_, high_, first_position_ = 0;
  std::int64_t first_row_ = 0, slot_ = 0;
};

}  // namespace deepinfer::cuda
