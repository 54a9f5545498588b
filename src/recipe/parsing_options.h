// How the reply to one request is to be parsed: what conversion decides and the reply parser obeys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipe/conformance.h"

namespace deepinfer::recipe {

/// Where in the reply parsing begins in thinking mode; `none`: thinking is off.
enum class ThinkingStage { none, reasoning_start, reasoning_continuation, content_continuation };

struct ParsingOptions {
  bool parse_tool_calls = false;      ///< look for tool call markup
  bool starts_in_tool_calls = false;  ///< the prompt has opened the calls block; wins over the thinking stage
  bool parse_json_output = false;     ///< JSON mode: text around the JSON value goes; officially it becomes blanks
  ThinkingStage thinking_initial_stage = ThinkingStage::none;
  std::vector<std::string> stop_sequences = {};
  std::optional<std::int32_t> max_calls = {};  ///< the reply ends with that many calls
  Conformance conformance = Conformance::official;

  friend bool operator==(const ParsingOptions&, const ParsingOptions&) = default;
};

}  // namespace deepinfer::recipe
