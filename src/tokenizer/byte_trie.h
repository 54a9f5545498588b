// A set of byte strings with values, walked byte by byte: which of them is the longest prefix of a text?
// A double-array trie: a step is one load. Immutable once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace deepinfer::tokenizer {

class ByteTrie {
 public:
  static constexpr std::int32_t kNone = -1;

  struct Entry {
    std::string_view text;   ///< not empty
    std::int32_t value = 0;  ///< not negative
  };
  struct Match {
    std::int32_t value = kNone;  ///< kNone: no entry is a prefix
    std::size_t length = 0;
  };

  /// The texts must be distinct. nullopt: they need more than the 4,194,304 cells that a cell can address.
  [[nodiscard]] static std::optional<ByteTrie> build(std::vector<Entry> entries);

  /// The longest entry that `text` starts with.
  [[nodiscard]] Match longest_prefix(std::string_view text) const {
    Match match;
    Cell cell = cells_[0];
    for (std::size_t at = 0; at < text.size(); ++at) {
      const auto byte = static_cast<unsigned char>(text[at]);
      cell = cells_[(cell.links >> kBaseShift) ^ byte];
      if ((cell.links & kLabelMask) != (kUsed | byte)) {
        break;
      }
      if (cell.value != kNone) {
        match = {.value = cell.value, .length = at + 1};
      }
    }
    return match;
  }

  /// The value of the entry that is exactly `text`; kNone when there is none.
  [[nodiscard]] std::int32_t find(std::string_view text) const {
    const Match match = longest_prefix(text);
    return match.length == text.size() ? match.value : kNone;
  }

 private:
  class Builder;

  // The child for a byte is the cell base ^ byte. Bases are unique, so the label alone tells a child from a stranger.
  struct Cell {
    std::uint32_t links = 0;     // base of the children (22 bits) | used | label (8 bits), the byte that leads here
    std::int32_t value = kNone;  // of the entry that ends here
  };
  static constexpr std::uint32_t kUsed = 1U << 8;
  static constexpr std::uint32_t kLabelMask = kUsed | 0xFF;
  static constexpr int kBaseShift = 10;

  ByteTrie() = default;

  std::vector<Cell> cells_;  // cell 0 is the root; cells 1 … 255 stay free: the children of cells without any
};

}  // namespace deepinfer::tokenizer
