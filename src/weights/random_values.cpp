#include "weights/random_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "tensor/formats.h"

namespace deepinfer::weights {

namespace {

/// SplitMix64: the n-th word follows from key and n alone.
std::uint64_t random_word(std::uint64_t key, std::uint64_t n) {
  std::uint64_t x = key + (n + 1) * 0x9E3779B97F4A7C15U;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 27) * 0x94D049BB133111EBU;
  return x ^ x >> 31;
}

/// x with P(standard normal < x) = probability, by bisection.
double normal_quantile(double probability) {
  double low = -8;
  double high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const double below = std::erfc(-middle / std::numbers::sqrt2) / 2;
    (below < probability ? low : high) = middle;
  }
  return low;
}

/// Middles of 256 equally likely slices of the standard normal distribution.
const std::array<float, 256>& normal_slices() {
  static const std::array<float, 256> slices = [] {
    std::array<float, 256> out{};
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(normal_quantile((static_cast<double>(i) + 0.5) / 256));
    }
    return out;
  }();
  return slices;
}

std::uint32_t bits_of(DType dtype, float value) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<std::uint32_t>(value);
    case DType::bf16:
      return to_bf16(value).bits;
    default:
      check(dtype == DType::f8_e4m3, "random values are f32, bf16 or f8_e4m3");
      return float_to_e4m3(value);
  }
}

template <class Item>
void fill_items(const std::array<std::uint32_t, 256>& items, std::uint64_t key, std::uint64_t first_word, std::span<std::byte> out) {
  constexpr std::size_t kPerWord = sizeof(std::uint64_t);  // one element per random byte
  for (std::size_t at = 0; at < out.size();) {
    std::array<Item, kPerWord> block;
    std::uint64_t word = random_word(key, first_word++);
    for (Item& item : block) {
      item = static_cast<Item>(items[word & 0xFFU]);
      word >>= 8;
    }
    const std::size_t bytes = std::min(sizeof(block), out.size() - at);
    std::memcpy(out.data() + at, block.data(), bytes);
    at += bytes;
  }
}

}  // namespace

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t out = random_word(seed, 0);
  for (const char c : name) {
    out = random_word(out, static_cast<unsigned char>(c));
  }
  return out;
}

ValueTable ValueTable::normal(DType dtype, float mean, float deviation) {
  ValueTable out;
  out.item_bytes_ = size_of(dtype);
  std::ranges::transform(normal_slices(), out.items_.begin(), [=](float slice) { return bits_of(dtype, mean + deviation * slice); });
  return out;
}

ValueTable ValueTable::fp4_pairs() {
  ValueTable out;
  for (std::uint32_t i = 0; i < out.items_.size(); ++i) {
    out.items_[i] = i;
  }
  return out;
}

ValueTable ValueTable::scales(std::int32_t exponent) {
  check(exponent >= -100 && exponent <= 100, "made-up scales are far from the ends of UE8M0");
  constexpr std::int32_t kBias = 127;
  constexpr std::array<std::int32_t, 4> kSteps = {0, 0, -1, 1};
  ValueTable out;
  for (std::size_t i = 0; i < out.items_.size(); ++i) {
    out.items_[i] = static_cast<std::uint32_t>(kBias + exponent + kSteps[i % kSteps.size()]);
  }
  return out;
}

void ValueTable::fill(std::uint64_t key, std::uint64_t first_element, std::span<std::byte> out) const {
  constexpr std::uint64_t kPerWord = sizeof(std::uint64_t);
  check(first_element % kPerWord == 0 && out.size() % item_bytes_ == 0, "tensors are filled in runs of whole random words");
  const std::uint64_t first_word = first_element / kPerWord;
  switch (item_bytes_) {
    case 1:
      return fill_items<std::uint8_t>(items_, key, first_word, out);
    case 2:
      return fill_items<std::uint16_t>(items_, key, first_word, out);
    default:
      return fill_items<std::uint32_t>(items_, key, first_word, out);
  }
}

}  // namespace deepinfer::weights
