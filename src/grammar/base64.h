// Base64 (RFC 4648) of masks and raw bytes in the probe's lines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::grammar {

[[nodiscard]] std::string to_base64(std::span<const std::uint8_t> data);
[[nodiscard]] Result<std::string> from_base64(std::string_view text);

}  // namespace deepinfer::grammar
