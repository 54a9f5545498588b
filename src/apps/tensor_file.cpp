#include "apps/tensor_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "apps/files.h"
#include "weights/problems.h"
#include "weights/safetensors.h"

namespace deepinfer::apps {

Result<std::vector<FileTensor>> read_tensor_file(const std::filesystem::path& path) {
  const Result<std::string> file = read_file(path);
  if (!file) {
    return std::unexpected(file.error());
  }
  std::uint64_t header_bytes = 0;
  if (file->size() >= weights::kLengthPrefixBytes) {
    std::memcpy(&header_bytes, file->data(), sizeof header_bytes);
  }
  if (header_bytes == 0 || header_bytes > file->size() - weights::kLengthPrefixBytes) {
    return fail(ErrorKind::corrupt, path.string() + " is no safetensors file");
  }
  const std::size_t data_begin = weights::kLengthPrefixBytes + header_bytes;
  weights::Problems problems;
  const std::string_view header = std::string_view(*file).substr(weights::kLengthPrefixBytes, header_bytes);
  const auto entries = weights::parse_header(header, file->size() - data_begin, path.string(), problems);
  if (!problems.empty()) {
    return problems.to_failure(ErrorKind::corrupt, path.string());
  }
  std::vector<FileTensor> out;
  for (const weights::HeaderEntry& entry : entries) {
    out.push_back({.description = entry.tensor, .bytes = file->substr(data_begin + entry.offset, entry.tensor.size_bytes())});
  }
  return out;
}

Result<void> write_tensor_file(const std::filesystem::path& path, const std::vector<FileTensor>& tensors) {
  std::vector<weights::TensorDescription> descriptions;
  for (const FileTensor& tensor : tensors) {
    descriptions.push_back(tensor.description);
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << weights::compose_header(descriptions);
  for (const FileTensor& tensor : tensors) {
    out << tensor.bytes;
  }
  out.close();
  if (!out) {
    return fail(ErrorKind::io, "cannot write " + path.string());
  }
  return {};
}

const FileTensor* find_tensor(const std::vector<FileTensor>& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, [](const FileTensor& tensor) { return std::string_view(tensor.description.name); });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace deepinfer::apps
