// Reads one safetensors file of goldens into memory. Only for tests: trusts the file and aborts on anything odd.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "tensor/formats.h"

namespace deepinfer::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), "the golden file exists");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline json::Value read_json(const std::filesystem::path& path) {
  Result<json::Value> value = json::parse(read_file(path));
  check(value.has_value(), "the golden file is JSON");
  return std::move(*value);
}

/// Integers of a JSON array.
inline std::vector<std::int32_t> integers(const json::Value& array) {
  std::vector<std::int32_t> out;
  for (const json::Value& item : *array.as_array()) {
    out.push_back(static_cast<std::int32_t>(*item.as_number()->as_int64()));
  }
  return out;
}

inline std::vector<double> numbers(const json::Value& array) {
  std::vector<double> out;
  for (const json::Value& item : *array.as_array()) {
    out.push_back(item.as_number()->as_double());
  }
  return out;
}

class GoldenFile {
 public:
  struct Tensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    const char* data = nullptr;
    std::size_t size_bytes = 0;
  };

  explicit GoldenFile(const std::filesystem::path& path) : bytes_(read_file(path)) {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    const std::size_t payload = sizeof(header_bytes) + header_bytes;
    const Result<json::Value> header = json::parse(std::string_view(bytes_).substr(sizeof(header_bytes), header_bytes));
    check(header.has_value(), "a golden file has a JSON header");
    for (const auto& [name, entry] : *header->as_object()) {
      if (name == "__metadata__") {
        continue;
      }
      Tensor tensor;
      tensor.dtype = *entry.find("dtype")->as_string();
      for (const std::int32_t extent : integers(*entry.find("shape"))) {
        tensor.shape.push_back(extent);
      }
      const std::vector<std::int32_t> offsets = integers(*entry.find("data_offsets"));
      tensor.data = bytes_.data() + payload + offsets[0];
      tensor.size_bytes = static_cast<std::size_t>(offsets[1] - offsets[0]);
      tensors_.emplace(name, tensor);
    }
  }

  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }
  [[nodiscard]] const Tensor& tensor(const std::string& name) const {
    check(contains(name), "the golden file holds the tensor");
    return tensors_.at(name);
  }
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  /// The elements as T, copied so that alignment does not matter. The item size must fit the dtype.
  template <class T>
  [[nodiscard]] std::vector<T> values(const std::string& name) const {
    const Tensor& source = tensor(name);
    std::vector<T> out(source.size_bytes / sizeof(T));
    std::memcpy(out.data(), source.data, source.size_bytes);
    return out;
  }

 private:
  std::string bytes_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace deepinfer::test
