// Prompts for the requests of a trace: made-up tokens, as many as the trace says divided by a scale, equal where the trace says that
// prompts are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apps/trace.h"
#include "base/ids.h"

namespace deepinfer::apps {

struct TraceScale {
  std::int32_t divisor = 1;     ///< of token counts
  std::int32_t vocab_size = 0;  ///< of the model, at least 2
  std::int32_t max_total = 0;   ///< prompt and output together, at least 2; longer prompts are cut at their end
};

struct ScaledRequest {
  std::vector<TokenId> prompt;
  std::int32_t num_output = 0;
  bool was_cut = false;
};

/// `index`: of the request in its trace; where the trace names no prefix, the prompt is unlike all others.
[[nodiscard]] ScaledRequest scaled_request(const TraceRequest& request, std::size_t index, const TraceScale& scale);

}  // namespace deepinfer::apps
