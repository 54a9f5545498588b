// The safetensors container: 8 bytes header length (little-endian), a JSON header of that length, then the tensors' bytes.
// Parses and composes headers; every number of a header is checked against the file's real size before anyone follows it.
// Not here: opening files (mapped_file.h), several files as one checkpoint (checkpoint.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/problems.h"
#include "weights/tensor_description.h"

namespace deepinfer::weights {

inline constexpr std::size_t kLengthPrefixBytes = 8;
/// A header must be shorter (docs/spec/model.md section 8).
inline constexpr std::size_t kHeaderLimitBytes = 100'000'000;

/// One tensor of a header. `offset` counts from the end of the header.
struct HeaderEntry {
  TensorDescription tensor;
  std::size_t offset = 0;
};

/// A name as messages show it: in quotes, escaped, cut when very long.
[[nodiscard]] std::string quote(std::string_view name);

/// Reads a header. `data_bytes` is what the file holds after it; `file` is what messages call the file.
/// Entries that are wrong are left out and described in `problems`: bad JSON, a name twice, unknown dtype, more than four axes, negative
/// extents, byte counts that differ from shape x item size, offsets outside the data (a truncated file), overlapping tensors.
[[nodiscard]] std::vector<HeaderEntry> parse_header(std::string_view text, std::size_t data_bytes, std::string_view file,
                                                    Problems& problems);

/// Length prefix and header of a file that holds `tensors` one after the other in this order.
/// Padded with blanks so that the data starts at a multiple of 8.
[[nodiscard]] std::string compose_header(std::span<const TensorDescription> tensors);

}  // namespace deepinfer::weights
