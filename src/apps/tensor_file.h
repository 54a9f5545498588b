// One safetensors file in memory: what `model probe` reads and writes. Checkpoints are weights/checkpoint.h.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/tensor_description.h"

namespace deepinfer::apps {

struct FileTensor {
  weights::TensorDescription description;
  std::string bytes;
};

/// Errors: not_found, io; corrupt with every problem of the header.
[[nodiscard]] Result<std::vector<FileTensor>> read_tensor_file(const std::filesystem::path& path);
/// Replaces the file. Errors: io.
[[nodiscard]] Result<void> write_tensor_file(const std::filesystem::path& path, const std::vector<FileTensor>& tensors);
/// nullptr when there is none of that name.
[[nodiscard]] const FileTensor* find_tensor(const std::vector<FileTensor>& tensors, std::string_view name);

}  // namespace deepinfer::apps
