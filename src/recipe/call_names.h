// Names of called functions: which of them can stand in a prompt and in an answer.
#pragma once

#include <algorithm>
#include <string_view>

namespace deepinfer::recipe {

/// Not empty and nothing that would end or open markup: no quotes, no angle brackets, no control characters.
[[nodiscard]] constexpr bool is_plain_call_name(std::string_view name) {
  return !name.empty() && std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '<' || c == '>' || c == 0x7F;
  });
}

}  // namespace deepinfer::recipe
