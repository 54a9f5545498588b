#include "weights/value_check.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "weights/safetensors.h"

namespace deepinfer::weights {

namespace {

/// How a bad code of a format shows in a 64-bit word of lanes: with the sign masked off, adding `step` carries into the sign bit exactly
/// for NaN magnitudes, and never into the next lane.
struct BadCodes {
  std::uint64_t magnitude = 0;    ///< all lanes without their sign bits
  std::uint64_t step = 0;         ///< per lane: sign bit minus smallest bad magnitude
  bool sign_must_be_set = false;  ///< UE8M0: only the byte 255 is bad, 127 is 1.0

  /// The sign bit of each bad lane.
  [[nodiscard]] std::uint64_t find(std::uint64_t word) const {
    const std::uint64_t carried = ((word & magnitude) + step) & ~magnitude;
    return sign_must_be_set ? carried & word : carried;
  }
};

std::optional<BadCodes> bad_codes(DType dtype) {
  switch (dtype) {
    case DType::f8_e8m0:
      return BadCodes{.magnitude = 0x7F7F7F7F7F7F7F7F, .step = 0x0101010101010101, .sign_must_be_set = true};
    case DType::f8_e4m3:
      return BadCodes{.magnitude = 0x7F7F7F7F7F7F7F7F, .step = 0x0101010101010101};
    case DType::bf16:
      return BadCodes{.magnitude = 0x7FFF7FFF7FFF7FFF, .step = 0x007F007F007F007F};
    case DType::f32:
      return BadCodes{.magnitude = 0x7FFFFFFF7FFFFFFF, .step = 0x007FFFFF007FFFFF};
    default:
      return std::nullopt;
  }
}

constexpr std::size_t kWord = sizeof(std::uint64_t);

/// `size` bytes as a word; missing lanes are zero, a good code in every format.
std::uint64_t load_word(const std::byte* bytes, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return word;
}

/// Byte offset of the first bad lane in a few bytes.
std::optional<std::size_t> first_bad(std::span<const std::byte> bytes, const BadCodes& codes) {
  for (std::size_t at = 0; at < bytes.size(); at += kWord) {
    const std::uint64_t found = codes.find(load_word(bytes.data() + at, std::min(kWord, bytes.size() - at)));
    if (found != 0) {
      return at + static_cast<std::size_t>(std::countr_zero(found)) / 8;
    }
  }
  return std::nullopt;
}

/// The same for a whole tensor: runs of words are tested without a branch per word.
std::optional<std::size_t> first_bad_of_tensor(std::span<const std::byte> bytes, const BadCodes& codes) {
  constexpr std::size_t kWordsPerRun = 64;
  std::size_t at = 0;
  for (; bytes.size() - at >= kWordsPerRun * kWord; at += kWordsPerRun * kWord) {
    std::uint64_t any = 0;
    for (std::size_t word = 0; word < kWordsPerRun; ++word) {
      any |= codes.find(load_word(bytes.data() + at + word * kWord, kWord));
    }
    if (any != 0) {
      break;
    }
  }
  const std::optional<std::size_t> found = first_bad(bytes.subspan(at), codes);
  return found ? std::optional(at + *found) : std::nullopt;
}

/// "row 3, column 17" of an element, counted in elements of the last axis.
std::string place_text(const TensorView& view, std::size_t element) {
  const std::size_t rank = view.shape.rank();
  const std::size_t columns = rank == 0 ? 1 : static_cast<std::size_t>(view.shape[rank - 1]);
  return "row " + std::to_string(element / columns) + ", column " + std::to_string(element % columns);
}

}  // namespace

Problems validate_values(const Checkpoint& checkpoint) {
  Problems out;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::optional<BadCodes> codes = bad_codes(tensor.view.dtype);
    const std::optional<std::size_t> at = codes ? first_bad_of_tensor({tensor.view.data, tensor.view.size_bytes()}, *codes) : std::nullopt;
    if (at) {
      const bool is_scale = tensor.view.dtype == DType::f8_e8m0;
      out.add(quote(tensor.name) + (is_scale ? " has the scale byte 255" : " has a value that is not a number") + " at " +
              place_text(tensor.view, *at / size_of(tensor.view.dtype)) + ": the checkpoint is damaged, fetch " +
              checkpoint.shards()[static_cast<std::size_t>(tensor.shard)].name + " again");
    }
  }
  return out;
}

}  // namespace deepinfer::weights
