#include "recipe/call_ids.h"

#include <string_view>

#include "recipe/reply_events.h"

namespace deepinfer::recipe {

namespace {

/// Unbiased by rejection: 64-bit draws at or above the largest multiple of `bound` are thrown away.
std::uint64_t below(std::uint64_t bound, const RandomBits& random) {
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  std::uint64_t draw = random();
  while (draw >= limit) {
    draw = random();
  }
  return draw % bound;
}

}  // namespace

std::string make_call_id(std::int32_t index, bool reasoning_is_empty, const RandomBits& random) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLetters = 20;
  constexpr int kDigits = 4;
  std::string id = index < 10 ? "call_0" : "call_";
  append_integer(id, static_cast<std::int64_t>(index));
  id += reasoning_is_empty ? "_ET_" : "_";
  for (int i = 0; i < kLetters; ++i) {
    id.push_back(kAlphabet[below(kAlphabet.size(), random)]);
  }
  for (int i = 0; i < kDigits; ++i) {
    id.push_back(static_cast<char>('0' + below(10, random)));
  }
  return id;
}

}  // namespace deepinfer::recipe
