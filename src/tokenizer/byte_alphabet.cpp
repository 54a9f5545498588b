#include "tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace deepinfer::tokenizer {

namespace {

// GPT-2: bytes that print in Latin-1 stand for themselves, the other 68 take U+0100 … U+0143 in ascending order.
constexpr std::uint32_t kFirstSubstitute = 0x100;
constexpr std::uint32_t kAlphabetEnd = 0x144;

constexpr bool prints_in_latin1(std::uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCodePointOfByte = [] {
  std::array<std::uint16_t, 256> out{};
  std::uint32_t next = kFirstSubstitute;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    out[byte] = static_cast<std::uint16_t>(prints_in_latin1(byte) ? byte : next++);
  }
  return out;
}();

constexpr auto kByteOfCodePoint = [] {
  std::array<std::int16_t, kAlphabetEnd> out{};
  out.fill(-1);
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    out[kCodePointOfByte[byte]] = static_cast<std::int16_t>(byte);
  }
  return out;
}();

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string out;
  out.reserve(spelling.size());
  while (!spelling.empty()) {
    const std::size_t length = utf8::sequence_length(spelling);
    if (length == 0) {
      return std::nullopt;
    }
    const std::uint32_t code_point = utf8::decode(spelling);
    if (code_point >= kAlphabetEnd || kByteOfCodePoint[code_point] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(kByteOfCodePoint[code_point]));
    spelling.remove_prefix(length);
  }
  return out;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    utf8::append(out, kCodePointOfByte[static_cast<unsigned char>(byte)]);
  }
  return out;
}

}  // namespace deepinfer::tokenizer
