#include "server/api_keys.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>

#include "base/sha256.h"

namespace deepinfer::server {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Looks at every byte of `given`, whatever `key` is.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  std::size_t difference = given.size() ^ key.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

bool is_bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) {
    return false;
  }
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if ((authorization[i] | 0x20) != kScheme[i]) {
      return false;
    }
  }
  return true;
}

std::string_view given_key(const RequestHead& head) {
  constexpr std::size_t kSchemeSize = 7;
  const std::string_view authorization = head.header("authorization");
  return is_bearer(authorization) ? trimmed(authorization.substr(kSchemeSize)) : head.header("x-api-key");
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return fail(ErrorKind::not_found, "there is no API key file " + file.string());
  }
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.good() && !in.eof()) {
    return fail(ErrorKind::io, "cannot read the API key file " + file.string());
  }
  Result<ApiKeys> keys = parse(text);
  if (!keys) {
    return fail(std::move(keys.error()), file.string());
  }
  return keys;
}

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t line_end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, line_end));
    if (!line.empty() && !line.starts_with('#')) {
      keys.emplace_back(line);
    }
    text.remove_prefix(std::min(line_end + 1, text.size()));
  }
  if (keys.empty()) {
    return fail(ErrorKind::invalid_argument, "holds no key; write one key a line");
  }
  return ApiKeys(std::move(keys));
}

bool ApiKeys::accept(const RequestHead& head) const {
  const std::string_view given = given_key(head);
  bool found = false;
  for (const std::string& key : keys_) {
    found = equal_in_constant_time(given, key) || found;
  }
  return found;
}

std::string owner_of(const RequestHead& head) {
  const std::string_view key = given_key(head);
  return key.empty() ? std::string() : sha256(std::as_bytes(std::span(key)));
}

}  // namespace deepinfer::server
