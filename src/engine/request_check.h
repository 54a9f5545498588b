// What a request must fulfil before it is accepted: every message says the number and the limit.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/request.h"

namespace deepinfer::engine {

struct RequestLimits {
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  bool takes_constraints = false;  ///< the engine knows the texts of its tokens
  ImageRules images = {};
};

/// Errors: invalid_argument; unsupported for a constraint that the engine cannot follow and for images without vision. Depends on nothing
/// that changes, so any thread may ask.
[[nodiscard]] Result<void> check_request(const GenerationRequest& request, const RequestLimits& limits);

/// Tokens after which the request ends by length: prompt and max_tokens, or one more than the context holds, whichever is less. The
/// last token is sampled from a full context and never computed itself (engine.md §2.1).
[[nodiscard]] std::int32_t max_total_tokens(const GenerationRequest& request, const RequestLimits& limits);

/// The error of a request that finds `max_unfinished` others unfinished: exhausted.
[[nodiscard]] std::unexpected<Error> queue_is_full(std::int32_t max_unfinished);

}  // namespace deepinfer::engine
