// Names of cache blocks by content: a block's hash covers its own tokens and everything before them, so equal hashes mean equal
// prefixes. 128 bits of SHA-256: nobody can make two prefixes meet.
#pragma once

#include <array>
#include <cstddef>
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
/// An image with tokens in a block: its tokens are the same for all images, so the block's name takes in what it shows.
struct BlockImage {
  std::int32_t first = 0;  ///< place of its first token, counted from the beginning of the block; negative when it began before
  BlockHash content;       ///< hash of its pixels and their size
};
/// The hash of the block with `tokens` behind the prefix `parent`. All blocks have equally many tokens.
[[nodiscard]] BlockHash next_hash(const BlockHash& parent, std::span<const TokenId> tokens, std::span<const BlockImage> images = {});
/// The hash of bytes that have a name of their own.
[[nodiscard]] BlockHash content_hash(std::span<const std::byte> bytes);

}  // namespace deepinfer::kvcache

template <>
struct std::hash<deepinfer::kvcache::BlockHash> {
  std::size_t operator()(const deepinfer::kvcache::BlockHash& name) const noexcept { return name.words[0]; }
};
