#include "recipe/regex_check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/utf8.h"
#include "recipe/unicode_property_names.h"

namespace deepinfer::recipe {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool is_listed(std::string_view list, std::string_view name) {
  return !name.empty() && list.find(" " + std::string(name) + " ") != std::string_view::npos;
}

/// Lower case, without what Unicode's loose matching ignores.
std::string loose(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') {
      out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
  }
  return out;
}

/// The text between the braces of \p{…}.
bool is_property(std::string_view text) {
  if (text.starts_with('^')) {
    text.remove_prefix(1);
  }
  const std::size_t mark = text.find_first_of("=:");
  if (mark != std::string_view::npos) {
    std::string key = loose(text.substr(0, mark));
    if (key.ends_with('!')) {
      key.pop_back();
    }
    const std::string value = loose(text.substr(mark + 1));
    if (key == "gc" || key == "generalcategory") {
      return is_listed(kGeneralCategories, value);
    }
    return (key == "sc" || key == "script" || key == "scx" || key == "scriptextensions") && is_listed(kScripts, value);
  }
  std::string name = loose(text);
  if (name.starts_with("is")) {
    name.erase(0, 2);
  }
  return is_listed(kGeneralCategories, name) || is_listed(kScripts, name) || is_listed(kBinaryProperties, name);
}

/// Recursive descent; every parse_ function returns false at the first mistake.
class RegexChecker {
 public:
  explicit RegexChecker(std::string_view pattern) : text_(pattern) {}

  bool check() { return parse_alternatives() && at_ == text_.size() && highest_reference_ <= num_groups_; }

 private:
  /// What came last in a sequence: decides what may be repeated.
  enum class Last { nothing, atom, assertion, repeated };

  /// A set of characters, whichever it is.
  struct AnyOf {};
  /// What an item of a class matches.
  using Matched = std::variant<std::uint32_t, AnyOf>;

  static constexpr int kMaxDepth = 250;  // nesting that the official parser refuses too

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[at_]; }
  [[nodiscard]] bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }

  bool take(std::string_view text) {
    const bool is_there = next_is(text);
    at_ += is_there ? text.size() : 0;
    return is_there;
  }

  std::uint32_t take_character() {
    const std::uint32_t code_point = utf8::decode(text_.substr(at_));
    at_ += utf8::sequence_length(text_.substr(at_));
    return code_point;
  }

  bool parse_alternatives() {
    if (++depth_ > kMaxDepth) {
      return false;
    }
    do {
      if (!parse_sequence()) {
        return false;
      }
    } while (take("|"));
    --depth_;
    return true;
  }

  bool parse_sequence() {
    Last last = Last::nothing;
    while (!at_end() && peek() != '|' && peek() != ')') {
      const bool is_quantifier = peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{';
      if (!(is_quantifier ? parse_quantifier(last) : parse_atom(last))) {
        return false;
      }
    }
    return true;
  }

  /// A counted repetition may be repeated once more, the other ones may not.
  bool parse_quantifier(Last& last) {
    const bool is_counted = peek() == '{';
    if (last == Last::nothing || last == Last::assertion || (last == Last::repeated && !is_counted)) {
      return false;
    }
    if (is_counted ? !parse_count() : !take(text_.substr(at_, 1))) {
      return false;
    }
    if (!take("?")) {
      take("+");
    }
    last = Last::repeated;
    return true;
  }

  /// {n}, {n,} or {n,m}.
  bool parse_count() {
    take("{");
    const std::optional<std::uint32_t> low = take_number();
    if (!low) {
      return false;
    }
    if (take("}")) {
      return true;
    }
    if (!take(",")) {
      return false;
    }
    if (take("}")) {
      return true;
    }
    const std::optional<std::uint32_t> high = take_number();
    return high && *low <= *high && take("}");
  }

  std::optional<std::uint32_t> take_number() {
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc{}) {
      return std::nullopt;
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    return out;
  }

  bool parse_atom(Last& last) {
    last = Last::atom;
    if (take("(")) {
      return parse_group(last);
    }
    if (take("[")) {
      return parse_class();
    }
    if (take("\\")) {
      return parse_escape();
    }
    take_character();
    return true;
  }

  bool parse_group(Last& last) {
    if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      last = Last::assertion;
    } else if (take("?<") || take("?P<")) {
      ++num_groups_;
      if (!parse_name()) {
        return false;
      }
    } else if (take("?")) {
      if (!parse_flags()) {
        return false;
      }
      if (take(")")) {
        last = Last::nothing;
        return true;
      }
      if (!take(":")) {
        return false;
      }
    } else {
      ++num_groups_;
    }
    return parse_alternatives() && take(")");
  }

  bool parse_name() {
    const std::size_t end = text_.find('>', at_);
    if (end == std::string_view::npos || end == at_) {
      return false;
    }
    const std::string_view name = text_.substr(at_, end - at_);
    for (std::size_t i = 0; i < name.size(); ++i) {
      const char c = name[i];
      const bool is_start = is_letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
      if (!is_start && (i == 0 || !(is_digit(c) || c == '.' || c == '[' || c == ']'))) {
        return false;
      }
    }
    at_ = end + 1;
    return names_.insert(std::string(name)).second;
  }

  /// Inline flags, up to the colon or the parenthesis. None at all is only right before a colon.
  bool parse_flags() {
    std::string seen;
    bool is_negated = false;
    while (!at_end() && peek() != ')' && peek() != ':') {
      const char flag = peek();
      if (flag == '-' ? is_negated : std::string_view("imsUuxR").find(flag) == std::string_view::npos) {
        return false;
      }
      if (seen.find(flag) != std::string::npos) {
        return false;
      }
      is_negated = is_negated || flag == '-';
      seen.push_back(flag);
      ++at_;
    }
    return !at_end() && !seen.ends_with('-') && (peek() == ':' || !seen.empty());
  }

  /// After a backslash outside of a class.
  bool parse_escape() {
    if (at_end()) {
      return false;
    }
    const char c = peek();
    if (c >= '1' && c <= '9') {
      const std::optional<std::uint32_t> reference = take_number();
      highest_reference_ = std::max(highest_reference_, reference.value_or(UINT32_MAX));
      return true;
    }
    if (std::string_view("bBAz").find(c) != std::string_view::npos) {
      ++at_;
      return true;
    }
    return parse_common_escape().has_value();
  }

  /// Escapes that a class has too.
  std::optional<Matched> parse_common_escape() {
    const char c = peek();
    if (!is_letter(c) && !is_digit(c)) {
      if (at_end() || static_cast<unsigned char>(c) >= 0x80) {
        return std::nullopt;
      }
      ++at_;
      return static_cast<std::uint32_t>(c);
    }
    ++at_;
    if (std::string_view("dDwWsS").find(c) != std::string_view::npos) {
      return AnyOf{};
    }
    switch (c) {
      case 'p':
      case 'P':
        return parse_property() ? std::optional<Matched>(AnyOf{}) : std::nullopt;
      case 'x':
        return parse_code_point(2);
      case 'u':
        return parse_code_point(4);
      case 'c':
        return is_letter(peek()) ? std::optional<Matched>(take_character() % 32) : std::nullopt;
      default:
        break;
    }
    constexpr std::string_view kNames = "fnrtv";
    constexpr std::string_view kCharacters = "\f\n\r\t\v";
    const std::size_t index = kNames.find(c);
    return index == std::string_view::npos ? std::nullopt : std::optional<Matched>(static_cast<std::uint32_t>(kCharacters[index]));
  }

  /// Exactly `num_digits` hexadecimal digits, or any number of them in braces; a Unicode scalar value.
  std::optional<Matched> parse_code_point(std::size_t num_digits) {
    std::string_view digits = text_.substr(at_, num_digits);
    if (take("{")) {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) {
        return std::nullopt;
      }
      digits = text_.substr(at_, end - at_);
      at_ = end + 1;
    } else {
      if (digits.size() < num_digits) {
        return std::nullopt;
      }
      at_ += num_digits;
    }
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    const bool is_number = error == std::errc{} && end == digits.data() + digits.size() && is_hex(digits[0]);
    const bool is_scalar = out <= 0x10FFFF && (out < 0xD800 || out > 0xDFFF);
    return is_number && is_scalar ? std::optional<Matched>(out) : std::nullopt;
  }

  /// After \p: one letter, or a name in braces.
  bool parse_property() {
    if (take("{")) {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) {
        return false;
      }
      const std::string_view name = text_.substr(at_, end - at_);
      at_ = end + 1;
      return is_property(name);
    }
    const std::string_view letter = text_.substr(at_, 1);
    at_ += letter.size();
    return is_listed(kGeneralCategories, loose(letter));
  }

  /// After the opening bracket. A closing bracket right there is a character; an opening one always is.
  bool parse_class() {
    take("^");
    bool is_first = true;
    while (!at_end() && (is_first || peek() != ']')) {
      is_first = false;
      const std::optional<Matched> begin = parse_class_item();
      if (!begin) {
        return false;
      }
      const bool is_range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (is_range) {
        ++at_;
        const std::optional<Matched> end = parse_class_item();
        if (!end || !is_ordered(*begin, *end)) {
          return false;
        }
      }
    }
    return take("]");
  }

  /// Both ends of a range are characters.
  static bool is_ordered(const Matched& begin, const Matched& end) {
    const auto* low = std::get_if<std::uint32_t>(&begin);
    const auto* high = std::get_if<std::uint32_t>(&end);
    return low != nullptr && high != nullptr && *low <= *high;
  }

  std::optional<Matched> parse_class_item() { return take("\\") ? parse_common_escape() : std::optional<Matched>(take_character()); }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::uint32_t num_groups_ = 0;
  std::uint32_t highest_reference_ = 0;
  std::set<std::string> names_;
};

}  // namespace

bool is_valid_regex(std::string_view pattern) { return RegexChecker(pattern).check(); }

}  // namespace deepinfer::recipe
