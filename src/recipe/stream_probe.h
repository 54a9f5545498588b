// The `stream` operation of the recipe probe, after conversion (spec/recipe_probe.md section 6): backend chunks as JSON in,
// steps and the complete response as JSON out. A test door; the server uses reply_stream.h.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "recipe/reply_stream.h"

namespace deepinfer::recipe {

/// Runs the `chunks` of a probe line. `options` come from the converted request; `id`, `model`, `parsing_options`, `signature`,
/// `no_tokenizer` and `no_finish` of the line are applied to them. `echo` changes nothing: the official package reports the settings
/// of the request either way. Times are 0.
/// Error: a line that does not follow the protocol.
[[nodiscard]] Result<json::Value> run_stream_probe(ReplyStreamOptions options, const json::Value& line);

}  // namespace deepinfer::recipe
