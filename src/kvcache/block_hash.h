// Names of cache blocks by content: a block's hash covers its own tokens and everything before them, so equal hashes mean equal
// prefixes. 128 bits of SHA-256: nobody can make two prefixes meet.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/ids.h"

namespace deepinfer::kvcache {

struct BlockHash {
  std::array<std::uint64_t, 2> words{};

  friend constexpr auto operator<=>(const BlockHash&, const BlockHash&) = default;
};

/// The parent of every first block. Requests with different salts share nothing.
[[nodiscard]] BlockHash root_hash(std::string_view salt);
/// The hash of the block with `tokens` behind the prefix `parent`.
[[nodiscard]] BlockHash next_hash(const BlockHash& parent, std::span<const TokenId> tokens);

}  // namespace deepinfer::kvcache

template <>
struct std::hash<deepinfer::kvcache::BlockHash> {
  std::size_t operator()(const deepinfer::kvcache::BlockHash& name) const noexcept { return name.words[0]; }
};
