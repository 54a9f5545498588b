// How many bytes a model needs and how many cache blocks fit: arithmetic on a Config and limits, without a device or a file.
// The engine sizes itself with it, `deepinfer inspect` and `make-dummy --describe` print it. Sources: docs/spec/model.md 8 and 9.
// Not here: allocation (caches.h, workspace.h), which request gets which block (kvcache).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/inventory.h"
#include "model/deepseek_v41/model.h"

namespace deepinfer::model {

/// Bytes of the packed caches (9.1, 9.2) when at most `max_drafts` drafts are verified at once.
struct CacheBytes {
  std::size_t compressed_rows = 0;   ///< per block, all kv sources
  std::size_t index_keys = 0;        ///< per block, all kv sources
  std::size_t window_ring = 0;       ///< per slot, one layer
  std::size_t window_rings = 0;      ///< per slot, all layers and drafter blocks
  std::size_t compressor_tail = 0;   ///< per slot, one kv source of ratio 2
  std::size_t compressor_tails = 0;  ///< per slot, all kv sources of ratio 2

  [[nodiscard]] std::size_t per_block() const { return compressed_rows + index_keys; }
  [[nodiscard]] std::size_t per_slot() const { return window_rings + compressor_tails; }
  /// Bytes per token of a long request; exact, because every ratio divides a block.
  [[nodiscard]] std::size_t per_token() const;
};

[[nodiscard]] CacheBytes cache_bytes(const Config& config, std::int32_t max_drafts);

/// Activations of one forward as workspace.h allocates them, and of the vision tower (vision.h). Scratch memory inside kernels is not
/// included.
[[nodiscard]] std::size_t workspace_bytes(const Config& config, const CacheSizes& sizes);

/// A device that reads files in place (Device::info) takes copies of weights of products, repacked for its kernels, only where memory holds
/// the checkpoint this many times, and copies of the others where it holds it twice as often; else they are read where the files are
/// mapped.
inline constexpr std::size_t kMemoryToRepack = 2;

/// What one of `num_ranks` expert-parallel ranks holds: routed experts by id and Engram tables by rows, both split evenly with the
/// remainder on the first ranks; everything else on every rank.
struct Rank {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 1;
};
[[nodiscard]] InventorySizes rank_sizes(const Config& config, Rank rank);

struct MemoryLimits {
  std::size_t memory_bytes = 0;     ///< for weights, caches and activations together; 0: no limit
  std::size_t kv_memory_bytes = 0;  ///< for blocks; 0: what memory_bytes leaves, or max_requests of full length when that is 0 too
  std::int32_t max_requests = 1;
  std::int32_t num_prefix_states = 0;  ///< slots beside those of the requests, for states behind cached prefixes
  std::int32_t max_batched_tokens = 512;
  std::int32_t max_model_len = 0;  ///< 0: max_position_embeddings
  std::int32_t max_drafts = 0;
  EngramTables engram_tables = EngramTables::in_memory;
  std::size_t host_memory_bytes = 0;  ///< for tables in host memory; 0: no limit
  Rank rank = {};
};

/// Byte counts of the device add up: weights + slots + blocks + workspace = total.
struct MemoryPlan {
  InventorySizes weights;  ///< of this rank, Engram tables included wherever they are
  EngramTables engram_tables = EngramTables::in_memory;
  CacheBytes cache = {};
  CacheSizes sizes;
  std::size_t weight_bytes = 0;    ///< in memory
  std::size_t repacked_bytes = 0;  ///< of these: written once at load in the order of the kernels; what fills up bf16 ones is not counted
  std::size_t slot_bytes = 0;
  std::size_t block_bytes = 0;
  std::size_t workspace_bytes = 0;
  std::size_t host_bytes = 0;  ///< pinned on the host: Engram tables that lie there

  [[nodiscard]] std::size_t total_bytes() const { return weight_bytes + slot_bytes + block_bytes + workspace_bytes; }
  /// Tokens that fit into the blocks; block 0 is padding.
  [[nodiscard]] std::int64_t capacity_tokens() const;
};

/// Errors: invalid_argument (a limit that makes no sense), exhausted (no room for one request of max_model_len), both with the numbers.
[[nodiscard]] Result<MemoryPlan> plan_memory(const Config& config, const MemoryLimits& limits);

}  // namespace deepinfer::model
