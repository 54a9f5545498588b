#include "grammar/class_masks.h"

#include <algorithm>
#include <array>
#include <bit>

#include "grammar/mask_bits.h"

namespace deepinfer::grammar {

ClassMasks::ClassMasks(std::vector<Made> made, std::size_t num_words)
    : num_words_(num_words), padded_words_((num_words + kBlock - 1) / kBlock * kBlock) {
  constexpr std::size_t kBits = 32;
  made.resize(num_words * kBits);  // rows without a token have no text
  std::vector<std::vector<std::uint32_t>> level(kNumClasses);
  longer_.assign(kShortChars + 1, std::vector<std::uint32_t>(padded_words_, 0));
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    for (CharClasses rest = made[i].classes; rest != 0; rest &= rest - 1) {
      std::vector<std::uint32_t>& mask = level[static_cast<std::size_t>(std::countr_zero(rest))];
      mask.resize(padded_words_, 0);
      set_bit(mask, token);
    }
    for (std::size_t length = 0; length < longer_.size() && length < made[i].chars; ++length) {
      set_bit(longer_[length], token);
    }
    if (made[i].chars > kShortChars) {
      long_tokens_.push_back({token, made[i].chars});
    }
  }
  while (level.size() > 1) {
    std::vector<std::vector<std::uint32_t>> pairs(level.size() / 2);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      pairs[i] = level[2 * i].empty() ? level[2 * i + 1] : level[2 * i];
      if (!level[2 * i].empty() && !level[2 * i + 1].empty()) {
        merge(pairs[i], level[2 * i + 1]);
      }
    }
    having_.push_back(std::move(level));
    level = std::move(pairs);
  }
}

std::vector<std::uint32_t> ClassMasks::within(const FreeText& text) const {
  std::vector<const std::uint32_t*> without;
  for (std::size_t first = 0; first < kNumClasses;) {
    std::size_t size = 0;  // the largest span from here on with none of the classes
    while (size < having_.size() && first % (std::size_t{1} << size) == 0 &&
           (text.classes >> first & (~CharClasses{0} >> (kNumClasses - (std::size_t{1} << size)))) == 0) {
      ++size;
    }
    if (size == 0) {
      ++first;
      continue;
    }
    const std::vector<std::uint32_t>& mask = having_[size - 1][first >> (size - 1)];
    if (!mask.empty()) {
      without.push_back(mask.data());
    }
    first += std::size_t{1} << (size - 1);
  }
  if (text.length < longer_.size()) {
    without.push_back(longer_[text.length].data());
  }
  std::vector<std::uint32_t> out(padded_words_);
  for (std::size_t first = 0; first < padded_words_; first += kBlock) {
    std::array<std::uint32_t, kBlock> gone{};
    for (const std::uint32_t* mask : without) {
      for (std::size_t i = 0; i < kBlock; ++i) {
        gone[i] |= mask[first + i];
      }
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      out[first + i] = ~gone[i];
    }
  }
  out.resize(num_words_);
  if (text.length >= longer_.size()) {
    for (const Long& one : long_tokens_) {
      if (one.chars > text.length) {
        clear_bit(out, one.token);
      }
    }
  }
  return out;
}

}  // namespace deepinfer::grammar
