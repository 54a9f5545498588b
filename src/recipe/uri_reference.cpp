#include "recipe/uri_reference.h"

#include <algorithm>
#include <optional>

namespace deepinfer::recipe {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_unreserved(char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::optional<int> hex_digit(char c) {
  if (is_digit(c)) {
    return c - '0';
  }
  const char letter = lower(c);
  return letter >= 'a' && letter <= 'f' ? std::optional(letter - 'a' + 10) : std::nullopt;
}

/// The byte of a percent escape at `at`.
std::optional<char> escaped_byte(std::string_view text, std::size_t at) {
  if (at + 2 >= text.size() || text[at] != '%') {
    return std::nullopt;
  }
  const std::optional<int> high = hex_digit(text[at + 1]);
  const std::optional<int> low = hex_digit(text[at + 2]);
  return high && low ? std::optional(static_cast<char>(*high * 16 + *low)) : std::nullopt;
}

/// Unreserved characters, escapes, and those in `others`.
bool has_only(std::string_view text, std::string_view others) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (!escaped_byte(text, i)) {
        return false;
      }
      i += 2;
    } else if (!is_unreserved(text[i]) && others.find(text[i]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

bool is_scheme(std::string_view text) {
  return !text.empty() && is_letter(text[0]) &&
         std::ranges::all_of(text, [](char c) { return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.'; });
}

constexpr std::string_view kSubDelims = "!$&'()*+,;=";
constexpr std::string_view kPathOthers = "!$&'()*+,;=:@/";
constexpr std::string_view kQueryOthers = "!$&'()*+,;=:@/?";

bool is_authority(std::string_view text) {
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    if (!has_only(text.substr(0, at), "!$&'()*+,;=:")) {
      return false;
    }
    text.remove_prefix(at + 1);
  }
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos || end == 1 || !has_only(text.substr(1, end - 1), "!$&'()*+,;=:")) {
      return false;
    }
    port = text.substr(end + 1);
  } else {
    const std::size_t colon = text.find(':');
    if (!has_only(text.substr(0, colon), kSubDelims)) {
      return false;
    }
    port = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
  }
  return port.empty() || (port[0] == ':' && std::ranges::all_of(port.substr(1), is_digit));
}

/// RFC 3986 section 5.2.4.
std::string without_dot_segments(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path.starts_with("../")) {
      path.remove_prefix(3);
    } else if (path.starts_with("./") || path.starts_with("/./")) {
      path.remove_prefix(2);
    } else if (path == "/.") {
      path = "/";
    } else if (path.starts_with("/../") || path == "/..") {
      path = path == "/.." ? std::string_view("/") : path.substr(3);
      const std::size_t slash = out.rfind('/');
      out.resize(slash == std::string::npos ? 0 : slash);
    } else if (path == "." || path == "..") {
      path = {};
    } else {
      const std::size_t next = std::min(path.find('/', 1), path.size());
      out += path.substr(0, next);
      path.remove_prefix(next);
    }
  }
  return out;
}

/// Escapes of unreserved characters resolved.
std::string normal_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::optional<char> byte = escaped_byte(text, i);
    if (byte && is_unreserved(*byte)) {
      out.push_back(*byte);
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string lower_text(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::string merged_path(const UriReference& base, std::string_view path) {
  if (base.has_authority && base.path.empty()) {
    return "/" + std::string(path);
  }
  return std::string(base.path.substr(0, base.path.rfind('/') + 1)) + std::string(path);
}

}  // namespace

UriReference split_uri(std::string_view text) {
  UriReference out;
  if (const std::size_t hash = text.find('#'); hash != std::string_view::npos) {
    out.fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
  }
  if (const std::size_t mark = text.find('?'); mark != std::string_view::npos) {
    out.query = text.substr(mark + 1);
    out.has_query = true;
    text = text.substr(0, mark);
  }
  if (const std::size_t colon = text.find_first_of(":/"); colon != std::string_view::npos && text[colon] == ':') {
    out.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    text.remove_prefix(2);
    const std::size_t end = std::min(text.find('/'), text.size());
    out.authority = text.substr(0, end);
    out.has_authority = true;
    text.remove_prefix(end);
  }
  out.path = text;
  return out;
}

bool is_uri_reference(std::string_view text) {
  const UriReference uri = split_uri(text);
  const std::size_t colon = text.find_first_of(":/?#");
  const bool has_colon = colon != std::string_view::npos && text[colon] == ':';
  return (!has_colon || is_scheme(uri.scheme)) && is_authority(uri.authority) && has_only(uri.path, kPathOthers) &&
         has_only(uri.query, kQueryOthers) && has_only(uri.fragment, kQueryOthers);
}

std::string resolve_uri(std::string_view base_text, std::string_view reference_text) {
  const UriReference base = split_uri(base_text);
  UriReference out = split_uri(reference_text);
  std::string path;
  if (!out.scheme.empty() || out.has_authority) {
    path = without_dot_segments(out.path);
  } else if (out.path.empty()) {
    path = std::string(base.path);
    if (!out.has_query) {
      out.query = base.query;
      out.has_query = base.has_query;
    }
  } else {
    path = without_dot_segments(out.path.starts_with('/') ? std::string(out.path) : merged_path(base, out.path));
  }
  const bool is_absolute = !out.scheme.empty();
  const bool has_authority = is_absolute || out.has_authority ? out.has_authority : base.has_authority;
  const std::string_view authority = is_absolute || out.has_authority ? out.authority : base.authority;
  const std::string_view scheme = is_absolute ? out.scheme : base.scheme;
  std::string text = scheme.empty() ? "" : lower_text(scheme) + ":";
  if (has_authority) {
    text += "//" + lower_text(authority);
  }
  text += normal_escapes(path);
  if (out.has_query) {
    text += "?" + normal_escapes(out.query);
  }
  return text;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::optional<char> byte = escaped_byte(text, i)) {
      out.push_back(*byte);
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace deepinfer::recipe
