// The set of accepted API keys. Keys are compared in constant time and appear in no message and no log.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http_message.h"

namespace deepinfer::server {

class ApiKeys {
 public:
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  /// One key a line; blanks around it, empty lines and lines that start with # do not count.
  /// Errors: not_found, io; invalid_argument when no key is left.
  static Result<ApiKeys> load(const std::filesystem::path& file);
  static Result<ApiKeys> parse(std::string_view text);

  /// Whether `Authorization: Bearer KEY` or `x-api-key: KEY` carries one of the keys. Time depends on the length of what was given only.
  [[nodiscard]] bool accept(const RequestHead& head) const;

 private:
  std::vector<std::string> keys_;
};

/// Names the holder of the key that a request carries without showing it: a SHA-256 in hexadecimal digits. "" without a key.
[[nodiscard]] std::string owner_of(const RequestHead& head);

}  // namespace deepinfer::server
