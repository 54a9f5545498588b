#include "recipe/base64.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer::recipe {

namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Value of each digit; -1 for all other bytes.
constexpr std::array<std::int8_t, 256> kValues = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}();

std::int8_t value_of(char digit) { return kValues[static_cast<unsigned char>(digit)]; }

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

}  // namespace

std::optional<std::string> decode_forgiving_base64(std::string text) {
  std::size_t size = 0;
  std::size_t padding = 0;
  std::uint32_t bits = 0;
  std::uint32_t num_bits = 0;
  for (const char c : text) {
    const std::int8_t value = value_of(c);
    if (value < 0) {
      if (c == '=') {
        ++padding;
      } else if (!is_blank(c)) {
        return std::nullopt;
      }
      continue;
    }
    if (padding > 0) {
      return std::nullopt;
    }
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      text[size++] = static_cast<char>((bits >> num_bits) & 0xFF);
    }
  }
  // Left over: 0 bits after whole groups, 4 after one byte (two padding signs), 2 after two bytes (one sign), 6 never.
  const std::size_t full_padding = num_bits / 2;
  if (num_bits == 6 || (padding != 0 && padding != full_padding)) {
    return std::nullopt;
  }
  text.resize(size);
  return text;
}

bool is_strict_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return false;
  }
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') {
    ++padding;
  }
  text.remove_suffix(padding);
  for (const char digit : text) {
    if (value_of(digit) < 0) {
      return false;
    }
  }
  // One padding sign leaves 2 unused bits in the last digit, two leave 4; they must be zero.
  const int unused_bits = static_cast<int>(padding) * 2;
  return padding == 0 || value_of(text.back()) % (1 << unused_bits) == 0;
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t group = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = (bits << 8) | (k < group ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out.push_back(k <= group ? kAlphabet[(bits >> (18 - 6 * k)) & 63] : '=');
    }
  }
  return out;
}

}  // namespace deepinfer::recipe
