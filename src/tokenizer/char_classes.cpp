#include "tokenizer/char_classes.h"

#include <algorithm>
#include <iterator>

namespace deepinfer::tokenizer {

namespace {

constexpr std::uint32_t kNumCodePoints = 0x110000;

struct Range {
  std::uint32_t first;
  std::uint8_t bits;
};

// clang-format off
constexpr Range kRanges[] = {
#include "tokenizer/char_class_ranges.inc"
};
// clang-format on

constexpr bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

constexpr std::uint32_t payload(char byte) { return static_cast<unsigned char>(byte) & 0x3FU; }

}  // namespace

CharClasses::CharClasses() : table_(kNumCodePoints) {
  for (std::size_t i = 0; i < std::size(kRanges); ++i) {
    const std::uint32_t end = i + 1 < std::size(kRanges) ? kRanges[i + 1].first : kNumCodePoints;
    std::fill(table_.begin() + kRanges[i].first, table_.begin() + end, kRanges[i].bits);
  }
}

ClassifiedChar CharClasses::read_multibyte(std::string_view text) const {
  constexpr ClassifiedChar kIllFormed{CharClass::kOther, 1};
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0xC2 || text.size() < 2 || !is_continuation(text[1])) {
    return kIllFormed;
  }
  if (lead < 0xE0) {
    return {table_[(lead & 0x1FU) << 6 | payload(text[1])], 2};
  }
  if (text.size() < 3 || !is_continuation(text[2])) {
    return kIllFormed;
  }
  if (lead < 0xF0) {
    const std::uint32_t code_point = (lead & 0x0FU) << 12 | payload(text[1]) << 6 | payload(text[2]);
    return code_point < 0x800 ? kIllFormed : ClassifiedChar{table_[code_point], 3};
  }
  if (lead > 0xF4 || text.size() < 4 || !is_continuation(text[3])) {
    return kIllFormed;
  }
  const std::uint32_t code_point = (lead & 0x07U) << 18 | payload(text[1]) << 12 | payload(text[2]) << 6 | payload(text[3]);
  return code_point < 0x10000 || code_point >= kNumCodePoints ? kIllFormed : ClassifiedChar{table_[code_point], 4};
}

}  // namespace deepinfer::tokenizer
