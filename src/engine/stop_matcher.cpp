// A token is released once every byte of it lies before the first place where a stop string may have begun.
#include "engine/stop_matcher.h"

#include <algorithm>

namespace deepinfer::engine {

StopMatcher::Progress StopMatcher::append(std::string_view token_bytes) {
  if (stop_strings_.empty()) {
    return {.num_released = 1};
  }
  const std::size_t num_old_bytes = withheld_.size();
  withheld_ += token_bytes;
  ends_.push_back(withheld_.size());
  if (const Match match = first_match(num_old_bytes); match.stop_string != nullptr) {
    const auto before = static_cast<std::size_t>(std::ranges::upper_bound(ends_, match.start) - ends_.begin());
    const std::size_t first_byte = before == 0 ? 0 : ends_[before - 1];
    return {.num_released = static_cast<std::int32_t>(before),
            .found = *match.stop_string,
            .text_before = std::string_view(withheld_).substr(first_byte, match.start - first_byte)};
  }
  return {.num_released = release(possible_start())};
}

/// The stop string whose last byte comes first, the longest of those that end together. Only ends among the new bytes are new.
StopMatcher::Match StopMatcher::first_match(std::size_t num_old_bytes) const {
  Match best;
  std::size_t best_end = 0;
  for (const std::string& stop_string : stop_strings_) {
    const std::size_t from = num_old_bytes + 1 > stop_string.size() ? num_old_bytes + 1 - stop_string.size() : 0;
    const std::size_t start = withheld_.find(stop_string, from);
    if (start == std::string::npos) {
      continue;
    }
    const std::size_t end = start + stop_string.size();
    if (best.stop_string == nullptr || end < best_end || (end == best_end && start < best.start)) {
      best = {.start = start, .stop_string = &stop_string};
      best_end = end;
    }
  }
  return best;
}

/// The first byte from which the rest is the beginning of a stop string; the end when there is none.
std::size_t StopMatcher::possible_start() const {
  std::size_t longest = 0;
  for (const std::string& stop_string : stop_strings_) {
    longest = std::max(longest, stop_string.size());
  }
  std::size_t start = withheld_.size() + 1 > longest ? withheld_.size() + 1 - longest : 0;
  for (; start < withheld_.size(); ++start) {
    const std::string_view rest = std::string_view(withheld_).substr(start);
    if (std::ranges::any_of(stop_strings_, [rest](const std::string& stop_string) { return stop_string.starts_with(rest); })) {
      break;
    }
  }
  return start;
}

/// Forgets the tokens that end within the first `num_bytes` bytes and returns how many they were.
std::int32_t StopMatcher::release(std::size_t num_bytes) {
  const auto num_tokens = static_cast<std::size_t>(std::ranges::upper_bound(ends_, num_bytes) - ends_.begin());
  const std::size_t num_released_bytes = num_tokens == 0 ? 0 : ends_[num_tokens - 1];
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(num_tokens));
  withheld_.erase(0, num_released_bytes);
  for (std::size_t& end : ends_) {
    end -= num_released_bytes;
  }
  return static_cast<std::int32_t>(num_tokens);
}

}  // namespace deepinfer::engine
