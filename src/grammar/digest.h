// SHA-256 and base64 of short byte strings, as the probe's answers spell masks. Not for cryptography.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::grammar {

/// Lower-case hex.
[[nodiscard]] std::string sha256_hex(std::span<const std::uint8_t> data);
[[nodiscard]] std::string to_base64(std::span<const std::uint8_t> data);
[[nodiscard]] Result<std::string> from_base64(std::string_view text);

}  // namespace deepinfer::grammar
