#include "grammar/base64.h"

#include <algorithm>

namespace deepinfer::grammar {

namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::span<const std::uint8_t> data) {
  std::string out;
  out.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < data.size(); i += 3) {
    const std::size_t have = std::min<std::size_t>(3, data.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < have ? data[i + j] : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out.push_back(j <= have ? kBase64[group >> (18 - 6 * j) & 63] : '=');
    }
  }
  return out;
}

Result<std::string> from_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') {
    text.remove_suffix(1);
  }
  std::string out;
  std::uint32_t group = 0;
  std::uint32_t bits = 0;
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) {
      return fail(ErrorKind::invalid_argument, "not base64");
    }
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>(group >> bits & 0xFF));
    }
  }
  return out;
}

}  // namespace deepinfer::grammar
