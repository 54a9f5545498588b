// Members of a request body that this server understands beside the official conversion, which ignores or refuses them: sampling
// filters and penalties, n, ignore_eos, priority, time limit, salt of the prefix cache. The same names in every API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/request.h"

namespace deepinfer::server {

struct RequestExtras {
  engine::SamplingParams sampling = {};    ///< top_k, min_p and the adjustments; the rest is the conversion's
  std::int32_t num_choices = 1;            ///< n
  bool ignore_eos = false;                 ///< the reply ends by length or stop sequence only
  std::optional<std::uint64_t> seed = {};  ///< for APIs whose conversion has none
  std::int32_t priority = 0;               ///< a higher one runs first
  Duration time_limit{};                   ///< from submission to the last token; zero: none
  std::string cache_salt = {};             ///< only requests with the same one share cached prefixes
};

/// Choices of one request at most.
inline constexpr std::int32_t kMaxChoices = 16;
inline constexpr std::int32_t kMaxPriority = 100;
inline constexpr std::size_t kMaxSaltBytes = 256;

/// top_k (−1 or at least 1; 0 also means all), min_p [0, 1], presence_penalty and frequency_penalty [−2, 2], repetition_penalty [0.01, 10],
/// logit_bias {"token id": −100 … 100}, ignore_eos, seed (any integer of 64 bits), n, priority (±kMaxPriority), time_limit (seconds, more
/// than 0 and at most a day), cache_salt (at most kMaxSaltBytes). null is absent. Errors: invalid_argument naming the member and its range.
[[nodiscard]] Result<RequestExtras> read_extras(const json::Value& body);

}  // namespace deepinfer::server
