// The packed caches behind block ids and slots, in production layout (docs/spec/model.md section 9).
// Not here: which request owns which block (kvcache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"

namespace deepinfer::model {

/// What one kv source layer stores per block and per slot.
struct SourceCache {
  std::int32_t ratio = 0;
  std::int32_t rows_per_block = 0;
  std::size_t block_compressed_bytes = 0;
  std::size_t block_key_bytes = 0;
  std::uint8_t* compressed = nullptr;  // [blocks * rows_per_block, compressed_record_bytes]
  std::uint8_t* index_keys = nullptr;  // [blocks, rows_per_block * index_key_bytes]: codes of the block, then scales
  float* tail = nullptr;               // [slots, tail_rows, 2, d] gate, value; ratio 2 only
};

struct Caches {
  std::int32_t ring_rows = 0;                   ///< window + drafts + 1: writing a draft never destroys a visible row
  std::int32_t tail_rows = 0;                   ///< 2 + drafts
  std::size_t ring_bytes = 0;                   ///< of one slot in one layer
  std::size_t tail_floats = 0;                  ///< of one slot in one kv source of ratio 2
  std::vector<std::uint8_t*> rings;             // per layer, with drafts those of the drafter's blocks last: [slots, ring_rows, window_record_bytes]
  std::map<std::int32_t, SourceCache> sources;  // by kv source layer
  std::vector<CacheGroup> groups;
  std::vector<Buffer> buffers;
};

/// The pieces of device memory that one block, or one slot, consists of, in a fixed order.
[[nodiscard]] std::vector<std::span<std::byte>> block_pieces(const Caches& caches, BlockId block);
[[nodiscard]] std::vector<std::span<std::byte>> state_pieces(const Caches& caches, SlotId slot);

[[nodiscard]] Result<Caches> make_caches(Device& device, const Config& config, const CacheSizes& sizes);

}  // namespace deepinfer::model
