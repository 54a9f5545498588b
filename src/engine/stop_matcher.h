// Finds stop strings in the bytes of a stream of tokens and says which tokens may be shown already.
// Not here: tokens' outputs (engine.cpp), stop sequences that count in a reply's content only (recipe).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::engine {

class StopMatcher {
 public:
  /// `stop_strings` without empty ones. Without any, every token is released at once.
  explicit StopMatcher(std::vector<std::string> stop_strings) : stop_strings_(std::move(stop_strings)) {}

  struct Progress {
    std::int32_t num_released = 0;      ///< the oldest withheld tokens that can be no part of a stop string any more
    std::string_view found = {};        ///< the stop string that is complete; empty: none
    std::string_view text_before = {};  ///< found: bytes of withheld tokens before it; valid until the matcher goes
  };

  /// The bytes of the next token. After `found` no more tokens may come.
  [[nodiscard]] Progress append(std::string_view token_bytes);

 private:
  struct Match {
    std::size_t start = 0;
    const std::string* stop_string = nullptr;
  };

  [[nodiscard]] Match first_match(std::size_t num_old_bytes) const;
  [[nodiscard]] std::size_t possible_start() const;
  [[nodiscard]] std::int32_t release(std::size_t num_bytes);

  std::vector<std::string> stop_strings_;
  std::string withheld_;          // bytes of the tokens not released yet
  std::deque<std::size_t> ends_;  // of these tokens, in withheld_
};

}  // namespace deepinfer::engine
