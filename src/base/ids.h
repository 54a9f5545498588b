// Strong ids: integers that name things and do not convert into each other.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace deepinfer {

/// An integer of type Rep that names a Tag. Same layout as Rep, so arrays of ids are arrays of Rep.
template <class Tag, class Rep>
struct StrongId {
  Rep value = Rep{};

  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using TokenId = StrongId<struct TokenTag, std::int32_t>;       ///< vocabulary index
using RequestId = StrongId<struct RequestTag, std::uint64_t>;  ///< unique in the life of one engine
using BlockId = StrongId<struct BlockTag, std::int32_t>;       ///< cache block; 0 is the padding target, never handed out
using SlotId = StrongId<struct SlotTag, std::int32_t>;         ///< bounded per-request state; 0 is the padding target
using LayerId = StrongId<struct LayerTag, std::int32_t>;       ///< transformer layer, drafter blocks follow the backbone

}  // namespace deepinfer

template <class Tag, class Rep>
struct std::hash<deepinfer::StrongId<Tag, Rep>> {
  std::size_t operator()(deepinfer::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
