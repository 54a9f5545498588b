// Reads one JSON object key by key and collects every problem: missing keys, wrong types, values outside their bounds.
// A bad value reads as the lower bound, so that the caller can go on and find the other problems.
// Not here: what the keys mean (config.cpp).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "weights/problems.h"

namespace deepinfer::model {

class ConfigReader {
 public:
  struct Bounds {
    std::int64_t low = 1;
    std::int64_t high = 0;
  };
  struct NumberBounds {
    double low = 0;
    double high = 0;
  };

  /// `object` may be null or no object: every key is then missing. `path` is put before keys in messages ("text_config.").
  ConfigReader(const json::Value* object, std::string path, weights::Problems& problems);

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] const json::Value* find(std::string_view key) const;
  /// The key is there and null.
  [[nodiscard]] bool is_null(std::string_view key) const;

  std::int64_t integer(std::string_view key, Bounds bounds);
  std::int32_t count(std::string_view key, Bounds bounds) { return static_cast<std::int32_t>(integer(key, bounds)); }
  std::vector<std::int64_t> integers(std::string_view key, Bounds bounds);
  std::vector<std::int32_t> counts(std::string_view key, Bounds bounds);
  double number(std::string_view key, NumberBounds bounds);
  bool boolean(std::string_view key);

  /// The key must be there and equal; numbers compare by value.
  void expect(std::string_view key, const json::Value& wanted);

  /// Adds "KEY is VALUE: MUST" unless `holds`. Silent when the key, or one of `uses`, was already found bad.
  void require(bool holds, std::string_view key, std::string_view must, std::initializer_list<std::string_view> uses = {});

 private:
  void problem(std::string_view key, std::string_view must);
  [[nodiscard]] std::optional<std::int64_t> in_bounds(const json::Value& value, Bounds bounds) const;

  const json::Value* object_;
  std::string path_;
  weights::Problems& problems_;
  std::set<std::string, std::less<>> bad_keys_;
};

}  // namespace deepinfer::model
