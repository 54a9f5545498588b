#include "model/deepseek_v41/cache_reader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/sha256.h"
#include "ops/ops.h"

namespace deepinfer::model {

CacheReader::CacheReader(Device& device, const Config& config, const Caches& caches, SlotId slot, std::vector<BlockId> blocks)
    : config_(config), caches_(caches), stream_(device.make_stream()), slot_(slot), blocks_(std::move(blocks)) {}

template <class T>
std::vector<T> CacheReader::copy(const T* source, std::size_t count) const {
  std::vector<T> out(count);
  stream_->copy(out.data(), source, count * sizeof(T));
  stream_->synchronize();
  return out;
}

std::vector<std::uint8_t> CacheReader::window_row(std::int32_t ring, std::int32_t position) const {
  const auto record = static_cast<std::size_t>(window_record_bytes(config_.head_dim));
  const auto place = static_cast<std::size_t>(slot_.value) * static_cast<std::size_t>(caches_.ring_rows) +
                     static_cast<std::size_t>(position % caches_.ring_rows);
  return copy(caches_.rings[static_cast<std::size_t>(ring)] + place * record, record);
}

std::vector<std::uint8_t> CacheReader::compressed_row(std::int32_t layer, std::int32_t j) const {
  const SourceCache& source = caches_.sources.at(layer);
  const auto record = static_cast<std::size_t>(compressed_record_bytes(config_.head_dim));
  const BlockId block = blocks_[static_cast<std::size_t>(j / source.rows_per_block)];
  const auto place = static_cast<std::size_t>(block.value) * static_cast<std::size_t>(source.rows_per_block) +
                     static_cast<std::size_t>(j % source.rows_per_block);
  return copy(source.compressed + place * record, record);
}

std::vector<std::uint8_t> CacheReader::index_key(std::int32_t layer, std::int32_t j) const {
  const SourceCache& source = caches_.sources.at(layer);
  const auto codes = static_cast<std::size_t>(config_.index_head_dim / 2);
  const auto scales = static_cast<std::size_t>(config_.index_head_dim / kQ4IndexGroup);
  const auto rows = static_cast<std::size_t>(source.rows_per_block);
  const auto row = static_cast<std::size_t>(j % source.rows_per_block);
  const std::uint8_t* block =
      source.index_keys + static_cast<std::size_t>(blocks_[static_cast<std::size_t>(j) / rows].value) * rows * (codes + scales);
  std::vector<std::uint8_t> out = copy(block + row * codes, codes);
  const std::vector<std::uint8_t> tail = copy(block + rows * codes + row * scales, scales);
  out.insert(out.end(), tail.begin(), tail.end());
  return out;
}

std::vector<float> CacheReader::tail_row(std::int32_t layer, std::int32_t position) const {
  const auto width = 2 * static_cast<std::size_t>(config_.head_dim);
  const auto place = static_cast<std::size_t>(slot_.value) * static_cast<std::size_t>(caches_.tail_rows) +
                     static_cast<std::size_t>(position % caches_.tail_rows);
  return copy(caches_.sources.at(layer).tail + place * width, width);
}

std::string CacheReader::state_sha256(std::int32_t length) const {
  Sha256 hash;
  const auto add = [&hash](const auto& row) { hash.update(std::as_bytes(std::span(row))); };
  for (std::int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    for (std::int32_t position = std::max(0, length - config_.sliding_window + 1); position < length; ++position) {
      add(window_row(layer, position));
    }
  }
  for (const auto& [layer, source] : caches_.sources) {
    for (std::int32_t j = 0; j < length / source.ratio; ++j) {
      add(compressed_row(layer, j));
      add(index_key(layer, j));
    }
    for (std::int32_t position = length / source.ratio * source.ratio; position < length; ++position) {
      add(tail_row(layer, position));
    }
  }
  return hash.finish();
}

}  // namespace deepinfer::model
