// Production traces as other projects publish them: when requests came and how long they were. Two formats, told apart by their
// first line: Mooncake (JSON lines) and Azure (CSV). Not here: prompts for them (trace_prompts.h), running them (trace_replay.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::apps {

/// Prompt tokens behind one entry of TraceRequest::hash_ids.
inline constexpr std::int32_t kTokensPerHash = 512;

struct TraceRequest {
  double arrival_seconds = 0;              ///< after the first request
  std::int32_t num_prompt = 0;             ///< tokens, at least 1
  std::int32_t num_output = 0;             ///< tokens, at least 1
  std::vector<std::int64_t> hash_ids = {};  ///< one per kTokensPerHash prompt tokens; equal ids: equal prompts up to there. Azure: none
};

enum class TraceFormat : std::uint8_t { mooncake, azure };

struct Trace {
  TraceFormat format = TraceFormat::mooncake;
  std::vector<TraceRequest> requests;  ///< in order of arrival
};

/// The first `max_requests` requests of a trace. Mooncake: {"timestamp" ms, "input_length", "output_length", "hash_ids"} a line; Azure:
/// TIMESTAMP,ContextTokens,GeneratedTokens with times as 2023-11-16 18:17:03.9799600. Counts below 1 become 1. Errors: invalid_argument
/// naming the line.
[[nodiscard]] Result<Trace> parse_trace(std::string_view text, std::size_t max_requests = std::numeric_limits<std::size_t>::max());

}  // namespace deepinfer::apps
