#include "base/utf8.h"

#include <cstring>

namespace deepinfer::utf8 {

namespace {

struct Lead {
  std::size_t length;        // of the whole sequence; 0: no lead byte
  unsigned char second_low;  // bounds of the second byte (Unicode table 3-7)
  unsigned char second_high;
};

constexpr Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

/// Bytes of the longest prefix of a well-formed sequence at the start of `text`, at least 1.
std::size_t maximal_subpart(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  std::size_t good = 1;
  while (good < lead.length && good < text.size()) {
    const auto byte = static_cast<unsigned char>(text[good]);
    const unsigned char low = good == 1 ? lead.second_low : 0x80;
    const unsigned char high = good == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) {
      break;
    }
    ++good;
  }
  return good;
}

}  // namespace

std::size_t sequence_length(std::string_view text) {
  if (text.empty()) {
    return 0;
  }
  const std::size_t length = lead_of(static_cast<unsigned char>(text[0])).length;
  return length != 0 && maximal_subpart(text) == length ? length : 0;
}

std::size_t multibyte_run(std::string_view text) {
  const auto is_tail = [](unsigned char byte) { return (byte & 0xC0) == 0x80; };
  std::size_t at = 0;
  while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) {
    const std::string_view rest = text.substr(at);
    const auto first = static_cast<unsigned char>(rest[0]);
    // Three bytes whose first bounds none of the others: nearly all of Chinese and Japanese.
    const bool is_common = first > 0xE0 && first < 0xF0 && first != 0xED && rest.size() >= 3 &&
                           is_tail(static_cast<unsigned char>(rest[1])) && is_tail(static_cast<unsigned char>(rest[2]));
    const std::size_t length = is_common ? 3 : sequence_length(rest);
    if (length == 0) {
      break;
    }
    at += length;
  }
  return at;
}

std::size_t first_invalid(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {  // eight ASCII bytes at a time
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080U) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const std::size_t run = multibyte_run(text.substr(at));
    if (run == 0) {
      return at;
    }
    at += run;
  }
  return at;
}

void append(std::string& out, std::uint32_t code_point) {
  const auto byte = [&out](std::uint32_t value) { out.push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | code_point >> 6);
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | code_point >> 12);
    byte(0x80 | (code_point >> 6 & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | code_point >> 18);
    byte(0x80 | (code_point >> 12 & 0x3F));
    byte(0x80 | (code_point >> 6 & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

std::uint32_t decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead_of(first).length;
  if (length == 1) {
    return first;
  }
  std::uint32_t out = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    out = out << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  return out;
}

std::string replace_invalid(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t good = first_invalid(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (!bytes.empty()) {
      out.append("\xEF\xBF\xBD");
      bytes.remove_prefix(maximal_subpart(bytes));
    }
  }
  return out;
}

}  // namespace deepinfer::utf8
