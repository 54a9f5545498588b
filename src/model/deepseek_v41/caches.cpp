#include "model/deepseek_v41/caches.h"

#include <utility>

#include "model/deepseek_v41/device_memory.h"
#include "ops/ops.h"

namespace deepinfer::model {

Result<Caches> make_caches(Device& device, const Config& config, const CacheSizes& sizes) {
  Caches out;
  DeviceMemory memory(device);
  out.ring_rows = config.sliding_window + sizes.max_drafts + 1;
  out.tail_rows = 2 + sizes.max_drafts;
  const auto blocks = static_cast<std::size_t>(sizes.num_blocks);
  const auto slots = static_cast<std::size_t>(sizes.num_slots);

  const std::size_t ring_bytes = static_cast<std::size_t>(out.ring_rows) * static_cast<std::size_t>(window_record_bytes(config.head_dim));
  const std::int32_t num_rings = config.num_all_layers();
  for (std::int32_t ring = 0; ring < num_rings; ++ring) {
    out.rings.push_back(memory.take<std::uint8_t>(slots * ring_bytes));
  }
  std::size_t compressed_bytes = 0;
  std::size_t key_bytes = 0;
  std::size_t tail_bytes = 0;
  for (const std::int32_t layer : config.kv_source_layer_ids) {
    SourceCache source;
    source.ratio = config.ratio(layer);
    source.rows_per_block = kBlockPositions / source.ratio;
    const auto rows = static_cast<std::size_t>(source.rows_per_block);
    const std::size_t block_compressed = rows * static_cast<std::size_t>(compressed_record_bytes(config.head_dim));
    const std::size_t block_keys = rows * static_cast<std::size_t>(index_key_bytes(config.index_head_dim));
    source.compressed = memory.take<std::uint8_t>(blocks * block_compressed);
    source.index_keys = memory.take<std::uint8_t>(blocks * block_keys);
    compressed_bytes += block_compressed;
    key_bytes += block_keys;
    if (source.ratio > 1) {
      const std::size_t slot_floats = static_cast<std::size_t>(out.tail_rows) * 2 * static_cast<std::size_t>(config.head_dim);
      source.tail = memory.take<float>(slots * slot_floats);
      tail_bytes += slot_floats * sizeof(float);
    }
    out.sources.emplace(layer, source);
  }
  out.groups = {{.name = "compressed rows", .bytes_per_unit = compressed_bytes, .num_units = sizes.num_blocks},
                {.name = "index keys", .bytes_per_unit = key_bytes, .num_units = sizes.num_blocks},
                {.name = "window rings", .bytes_per_unit = ring_bytes * static_cast<std::size_t>(num_rings), .num_units = sizes.num_slots},
                {.name = "compressor tails", .bytes_per_unit = tail_bytes, .num_units = sizes.num_slots}};
  Result<std::vector<Buffer>> buffers = std::move(memory).finish("caches");
  if (!buffers) {
    return std::unexpected(std::move(buffers.error()));
  }
  out.buffers = std::move(*buffers);
  return out;
}

}  // namespace deepinfer::model
