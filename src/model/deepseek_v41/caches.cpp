#include "model/deepseek_v41/caches.h"

#include <utility>

#include "model/deepseek_v41/device_memory.h"
#include "ops/ops.h"

namespace deepinfer::model {
namespace {

/// Piece number `index` of consecutive ones of `size_bytes`.
template <class T>
std::span<std::byte> piece(T* base, std::int32_t index, std::size_t size_bytes) {
  return {reinterpret_cast<std::byte*>(base) + static_cast<std::size_t>(index) * size_bytes, size_bytes};
}

}  // namespace

std::vector<std::span<std::byte>> block_pieces(const Caches& caches, BlockId block) {
  std::vector<std::span<std::byte>> out;
  for (const auto& [layer, source] : caches.sources) {
    out.push_back(piece(source.compressed, block.value, source.block_compressed_bytes));
    out.push_back(piece(source.index_keys, block.value, source.block_key_bytes));
  }
  return out;
}

std::vector<std::span<std::byte>> state_pieces(const Caches& caches, SlotId slot) {
  std::vector<std::span<std::byte>> out;
  for (std::uint8_t* ring : caches.rings) {
    out.push_back(piece(ring, slot.value, caches.ring_bytes));
  }
  for (const auto& [layer, source] : caches.sources) {
    if (source.tail != nullptr) {
      out.push_back(piece(source.tail, slot.value, caches.tail_floats * sizeof(float)));
    }
  }
  return out;
}

Result<Caches> make_caches(Device& device, const Config& config, const CacheSizes& sizes) {
  Caches out;
  DeviceMemory memory(device);
  out.ring_rows = config.sliding_window + sizes.max_drafts + 1;
  out.tail_rows = 2 + sizes.max_drafts;
  const auto blocks = static_cast<std::size_t>(sizes.num_blocks);
  const auto slots = static_cast<std::size_t>(sizes.num_slots);

  out.ring_bytes = static_cast<std::size_t>(out.ring_rows) * static_cast<std::size_t>(window_record_bytes(config.head_dim));
  out.tail_floats = static_cast<std::size_t>(out.tail_rows) * 2 * static_cast<std::size_t>(config.head_dim);
  const std::int32_t num_rings = config.num_rings(sizes.max_drafts);
  for (std::int32_t ring = 0; ring < num_rings; ++ring) {
    out.rings.push_back(memory.take<std::uint8_t>(slots * out.ring_bytes));
  }
  std::size_t compressed_bytes = 0;
  std::size_t key_bytes = 0;
  std::size_t tail_bytes = 0;
  for (const std::int32_t layer : config.kv_source_layer_ids) {
    SourceCache source;
    source.ratio = config.ratio(layer);
    source.rows_per_block = kBlockPositions / source.ratio;
    const auto rows = static_cast<std::size_t>(source.rows_per_block);
    source.block_compressed_bytes = rows * static_cast<std::size_t>(compressed_record_bytes(config.head_dim));
    source.block_key_bytes = rows * static_cast<std::size_t>(index_key_bytes(config.index_head_dim));
    source.compressed = memory.take<std::uint8_t>(blocks * source.block_compressed_bytes);
    source.index_keys = memory.take<std::uint8_t>(blocks * source.block_key_bytes);
    compressed_bytes += source.block_compressed_bytes;
    key_bytes += source.block_key_bytes;
    if (source.ratio > 1) {
      source.tail = memory.take<float>(slots * out.tail_floats);
      tail_bytes += out.tail_floats * sizeof(float);
    }
    out.sources.emplace(layer, source);
  }
  out.groups = {
      {.name = "compressed rows", .unit = CacheUnit::block, .bytes_per_unit = compressed_bytes, .num_units = sizes.num_blocks},
      {.name = "index keys", .unit = CacheUnit::block, .bytes_per_unit = key_bytes, .num_units = sizes.num_blocks},
      {.name = "window rings",
       .unit = CacheUnit::slot,
       .bytes_per_unit = out.ring_bytes * static_cast<std::size_t>(num_rings),
       .num_units = sizes.num_slots},
      {.name = "compressor tails", .unit = CacheUnit::slot, .bytes_per_unit = tail_bytes, .num_units = sizes.num_slots}};
  Result<std::vector<Buffer>> buffers = std::move(memory).finish("caches");
  if (!buffers) {
    return std::unexpected(std::move(buffers.error()));
  }
  out.buffers = std::move(*buffers);
  return out;
}

}  // namespace deepinfer::model
