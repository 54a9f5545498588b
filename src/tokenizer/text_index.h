// From texts to numbers, for the hundreds of thousands of names of one vocabulary: open addressing over views.
// The texts belong to the caller and must stay where they are.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace deepinfer::tokenizer {

class TextIndex {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit TextIndex(std::size_t max_texts) : slots_(std::bit_ceil(max_texts * 2 + 2)), mask_(slots_.size() - 1) {}

  /// The value of `text`, which becomes `value` (not negative) if it has none yet. At most max_texts may be added.
  std::int32_t get_or_add(std::string_view text, std::int32_t value) {
    Slot& slot = slots_[slot_of(text)];
    if (slot.value == kNone) {
      ++size_;
      slot = {.text = text, .hash = hash_of(text), .value = value};
    }
    return slot.value;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// kNone when `text` is not there.
  [[nodiscard]] std::int32_t find(std::string_view text) const { return slots_[slot_of(text)].value; }

 private:
  struct Slot {
    std::string_view text;
    std::uint32_t hash = 0;
    std::int32_t value = kNone;
  };

  static std::uint32_t hash_of(std::string_view text) {
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
    std::uint64_t hash = text.size() * kFactor;
    std::uint64_t word = 0;
    for (; text.size() > sizeof(word); text.remove_prefix(sizeof(word))) {
      std::memcpy(&word, text.data(), sizeof(word));
      hash = (hash ^ word) * kFactor;
      hash ^= hash >> 29;
    }
    word = 0;
    std::memcpy(&word, text.data(), text.size());
    hash = (hash ^ word) * kFactor;
    return static_cast<std::uint32_t>((hash ^ hash >> 29) * kFactor >> 32);
  }

  /// Where `text` is, or the free slot where it belongs.
  [[nodiscard]] std::size_t slot_of(std::string_view text) const {
    const std::uint32_t hash = hash_of(text);
    std::size_t at = hash & mask_;
    while (slots_[at].value != kNone && (slots_[at].hash != hash || slots_[at].text != text)) {
      at = (at + 1) & mask_;
    }
    return at;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
  std::size_t size_ = 0;
};

}  // namespace deepinfer::tokenizer
