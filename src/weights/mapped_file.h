// A whole file in the address space, read-only. Knows nothing of its content.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace deepinfer::weights {

/// Moves, never copies. The bytes stay valid until destruction; shortening the file meanwhile ends the process on access.
class MappedFile {
 public:
  /// Errors: not_found (no such file), io (unreadable, no regular file, empty). The message starts with the file name.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace deepinfer::weights
