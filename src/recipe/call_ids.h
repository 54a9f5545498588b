// Ids of tool calls (spec/recipe.md section 3.4): they carry the place of the call and whether the reasoning was empty.
// Reading such ids back from a history is conversion's business.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace deepinfer::recipe {

/// Source of random bits for ids; unpredictable in production, fixed in tests.
using RandomBits = std::function<std::uint64_t()>;

/// `call_` index `_` [`ET_`] 20 random letters and digits, 4 random digits. The index has at least two digits.
[[nodiscard]] std::string make_call_id(std::int32_t index, bool reasoning_is_empty, const RandomBits& random);

}  // namespace deepinfer::recipe
