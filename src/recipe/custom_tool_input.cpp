#include "recipe/custom_tool_input.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/utf8.h"

namespace deepinfer::recipe {

namespace {

constexpr std::array<std::string_view, 4> kOpening = {"{", "\"input\"", ":", "\""};

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The character that `\c` stands for; empty when it is no escape of one character.
std::string_view simple_escape(char c) {
  switch (c) {
    case '"':
      return "\"";
    case '\\':
      return "\\";
    case '/':
      return "/";
    case 'b':
      return "\b";
    case 'f':
      return "\f";
    case 'n':
      return "\n";
    case 'r':
      return "\r";
    case 't':
      return "\t";
    default:
      return {};
  }
}

/// Value of four hexadecimal digits.
std::optional<std::uint32_t> hex4(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const bool complete = digits.size() == 4 && error == std::errc() && end == digits.data() + digits.size();
  return complete ? std::optional(value) : std::nullopt;
}

bool is_high_surrogate(std::uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(std::uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

}  // namespace

void CustomToolInput::take(std::string_view piece, std::string& out) {
  for (std::size_t i = 0; i < piece.size(); ++i) {
    switch (state_) {
      case State::opening:
        take_opening(piece[i], out);
        break;
      case State::string:
        take_string(piece[i], out);
        break;
      case State::closed:
        return;
      case State::other:
        out.append(piece.substr(i));
        return;
    }
  }
}

void CustomToolInput::finish(std::string& out) {
  if (state_ == State::opening) {
    out += opening_;
  }
  out += escape_;
  state_ = State::closed;
}

void CustomToolInput::take_opening(char c, std::string& out) {
  opening_.push_back(c);
  if (part_bytes_ == 0 && is_json_space(c)) {
    return;
  }
  if (c != kOpening[part_][part_bytes_]) {
    out += opening_;
    state_ = State::other;
    return;
  }
  if (++part_bytes_ < kOpening[part_].size()) {
    return;
  }
  part_bytes_ = 0;
  if (++part_ == kOpening.size()) {
    state_ = State::string;
  }
}

void CustomToolInput::take_string(char c, std::string& out) {
  if (!escape_.empty()) {
    take_escape(c, out);
  } else if (c == '"') {
    state_ = State::closed;
  } else if (c == '\\') {
    escape_ = "\\";
    escape_chars_ = 1;
  } else {
    out.push_back(c);
  }
}

/// An escape is `\c`, `\uXXXX` or two of the latter; whatever turns out to be none stands as it was written.
void CustomToolInput::take_escape(char c, std::string& out) {
  constexpr std::size_t kUnit = 6;  // characters of \uXXXX
  escape_.push_back(c);
  const std::size_t at = escape_chars_ % kUnit;
  const bool continues_char = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
  escape_chars_ += continues_char ? 0 : 1;
  if (at == 0 && c != '\\') {
    end_escape(escape_, out);
  } else if (at == 1 && c != 'u') {
    const std::string_view simple = escape_chars_ == 2 ? simple_escape(c) : std::string_view();
    end_escape(simple.empty() ? std::string_view(escape_) : simple, out);
  } else if (escape_chars_ % kUnit == 0 && !continues_char) {
    decode_units(out);
  }
}

void CustomToolInput::decode_units(std::string& out) {
  constexpr std::size_t kFirst = 2;
  constexpr std::size_t kSecond = 8;
  const bool pair = escape_chars_ > kSecond;
  const std::optional<std::uint32_t> first = hex4(std::string_view(escape_).substr(kFirst, pair ? 4 : std::string_view::npos));
  const std::optional<std::uint32_t> second = pair ? hex4(std::string_view(escape_).substr(kSecond)) : std::nullopt;
  std::string character;
  if (pair) {
    if (second && is_low_surrogate(*second)) {
      utf8::append(character, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
    }
  } else if (first && is_high_surrogate(*first)) {
    return;
  } else if (first && !is_low_surrogate(*first)) {
    utf8::append(character, *first);
  }
  end_escape(character.empty() ? escape_ : character, out);
}

void CustomToolInput::end_escape(std::string_view replacement, std::string& out) {
  out += replacement;
  escape_.clear();
  escape_chars_ = 0;
}

}  // namespace deepinfer::recipe
