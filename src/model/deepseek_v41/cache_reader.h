// Reads single rows of the packed caches back: for goldens, the state hash of `model probe` and debugging.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/deepseek_v41/caches.h"
#include "model/deepseek_v41/config.h"
#include "ops/device.h"

namespace deepinfer::model {

/// The cached bytes of one request. All results are host copies.
class CacheReader {
 public:
  CacheReader(Device& device, const Config& config, const Caches& caches, SlotId slot, std::vector<BlockId> blocks);

  /// Codes, then scales, of a position that the ring still holds. `ring` counts drafter blocks behind the backbone.
  [[nodiscard]] std::vector<std::uint8_t> window_row(std::int32_t ring, std::int32_t position) const;
  /// Packed codes, then scales, of row j of a kv source layer.
  [[nodiscard]] std::vector<std::uint8_t> compressed_row(std::int32_t layer, std::int32_t j) const;
  /// Packed codes, then scales, of index key j.
  [[nodiscard]] std::vector<std::uint8_t> index_key(std::int32_t layer, std::int32_t j) const;
  /// Gate, then value, of a position that the compressor tail still holds; [2, head_dim].
  [[nodiscard]] std::vector<float> tail_row(std::int32_t layer, std::int32_t position) const;

  /// SHA-256 (hex) over everything a later token of a request with `length` tokens can read: window rows, compressed rows,
  /// index keys and unfinished pairs, in a fixed order.
  [[nodiscard]] std::string state_sha256(std::int32_t length) const;

 private:
  template <class T>
  std::vector<T> copy(const T* source, std::size_t count) const;

  const Config& config_;
  const Caches& caches_;
  std::unique_ptr<Stream> stream_;
  SlotId slot_;
  std::vector<BlockId> blocks_;
};

}  // namespace deepinfer::model
