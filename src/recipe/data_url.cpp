#include "recipe/data_url.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "recipe/base64.h"

namespace deepinfer::recipe {

namespace {

bool is_tab_or_newline(char c) { return c == '\t' || c == '\n' || c == '\r'; }
bool is_http_blank(char c) { return c == ' ' || is_tab_or_newline(c); }
bool is_control_or_blank(char c) { return static_cast<unsigned char>(c) <= ' '; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_token_character(char c) {
  const bool is_alphanumeric = (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z');
  return is_alphanumeric || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_character); }

template <class Predicate>
std::string_view trim(std::string_view text, Predicate is_trimmed) {
  while (!text.empty() && is_trimmed(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_trimmed(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

/// What follows "data:", in any case and with tabs and newlines anywhere.
std::optional<std::string_view> after_scheme(std::string_view url) {
  url = trim(url, is_control_or_blank);
  for (const char expected : std::string_view("data:")) {
    while (!url.empty() && is_tab_or_newline(url.front())) {
      url.remove_prefix(1);
    }
    if (url.empty() || lower(url.front()) != expected) {
      return std::nullopt;
    }
    url.remove_prefix(1);
  }
  return url;
}

/// `header` without a final `; base64`; nullopt when it has none.
std::optional<std::string_view> without_base64_suffix(std::string_view header) {
  const auto take = [&header](char expected) {
    while (!header.empty() && is_tab_or_newline(header.back())) {
      header.remove_suffix(1);
    }
    const bool is_there = !header.empty() && lower(header.back()) == expected;
    if (is_there) {
      header.remove_suffix(1);
    }
    return is_there;
  };
  for (const char expected : std::string_view("46esab")) {
    if (!take(expected)) {
      return std::nullopt;
    }
  }
  while (take(' ')) {
  }
  return take(';') ? std::optional(header) : std::nullopt;
}

std::string media_type_of(std::string_view header) {
  constexpr std::string_view kDefault = "text/plain";
  std::string text;
  std::ranges::copy_if(header, std::back_inserter(text), [](char c) { return !is_tab_or_newline(c); });
  const std::string_view essence = trim(std::string_view(text).substr(0, text.find(';')), is_http_blank);
  const std::size_t slash = essence.find('/');
  if (slash == std::string_view::npos || !is_token(essence.substr(0, slash)) || !is_token(essence.substr(slash + 1))) {
    return std::string(kDefault);
  }
  std::string out(essence);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char letter = lower(c);
  return letter >= 'a' && letter <= 'f' ? std::optional(letter - 'a' + 10) : std::nullopt;
}

/// Percent escapes resolved, tabs and newlines dropped, cut at the fragment.
std::string percent_decoded(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (std::size_t i = 0; i < body.size() && body[i] != '#'; ++i) {
    if (is_tab_or_newline(body[i])) {
      continue;
    }
    if (body[i] == '%' && i + 2 < body.size()) {
      const std::optional<int> high = hex_digit(body[i + 1]);
      const std::optional<int> low = hex_digit(body[i + 2]);
      if (high && low) {
        out.push_back(static_cast<char>(*high * 16 + *low));
        i += 2;
        continue;
      }
    }
    out.push_back(body[i]);
  }
  return out;
}

}  // namespace

std::optional<DataUrl> parse_data_url(std::string_view url) {
  const std::optional<std::string_view> rest = after_scheme(url);
  if (!rest) {
    return std::nullopt;
  }
  const std::size_t comma = rest->find_first_of(",#");
  if (comma == std::string_view::npos || (*rest)[comma] == '#') {
    return std::nullopt;
  }
  const std::string_view header = trim(rest->substr(0, comma), is_http_blank);
  const std::optional<std::string_view> base64_header = without_base64_suffix(header);
  return DataUrl{
      .media_type = media_type_of(base64_header.value_or(header)), .is_base64 = base64_header.has_value(), .body = rest->substr(comma + 1)};
}

std::optional<std::string> decode_body(const DataUrl& url) {
  std::string bytes = percent_decoded(url.body);
  return url.is_base64 ? decode_forgiving_base64(std::move(bytes)) : std::optional(std::move(bytes));
}

}  // namespace deepinfer::recipe
