// Configurations for the tests of the model room: the real one, the bundled ones, and variants with one value changed.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "model/deepseek_v41/config.h"

namespace deepinfer::model::testing {

inline json::Value read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value.has_value()) << path;
  return value ? std::move(*value) : json::Value();
}

inline json::Value real_json() { return read_json(DEEPINFER_MODELS "/configs/deepseek-v4.1-flash.json"); }
inline json::Value nano_json() { return read_json(DEEPINFER_MODELS "/nano/config.json"); }
inline json::Value tiny_json() { return read_json(DEEPINFER_TEST_DATA "/tiny/config.json"); }

/// `root` with one value set; `path` is "key" or "object.key", `value` JSON text, empty to remove the key.
inline json::Value with(json::Value root, std::string_view path, std::string_view value) {
  const std::size_t dot = path.find('.');
  json::Object* object = root.as_object();
  if (dot != std::string_view::npos) {
    object = object->find(path.substr(0, dot))->as_object();
    path.remove_prefix(dot + 1);
  }
  if (value.empty()) {
    object->erase(path);
  } else {
    object->set(std::string(path), json::parse(value).value());
  }
  return root;
}

inline Config parsed(const json::Value& root) {
  Result<Config> config = parse_config(root, "config");
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config ? *config : Config{};
}

inline Config real_config() { return parsed(real_json()); }

}  // namespace deepinfer::model::testing
