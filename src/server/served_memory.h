// What a served model occupies, as it was allocated: for start-up lines and /metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer::server {

/// What grows with the tokens of requests is counted in blocks, what a request has once in slots.
enum class CacheUnit : std::uint8_t { block, slot };

struct ServedCacheGroup {
  std::string name;  ///< "window rings"
  CacheUnit unit = CacheUnit::block;
  std::size_t bytes_per_unit = 0;
  std::int32_t num_units = 0;  ///< padding included

  [[nodiscard]] std::size_t num_bytes() const { return static_cast<std::size_t>(num_units) * bytes_per_unit; }
};

struct ServedMemory {
  std::size_t weight_bytes = 0;
  std::size_t workspace_bytes = 0;
  std::vector<ServedCacheGroup> groups;
};

}  // namespace deepinfer::server
