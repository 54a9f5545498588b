// The jobs of `deepinfer recipe bench` (spec/recipe_probe.md section 9): each is repeated, the best round counts.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::apps {

/// `jobs`: {"jobs": [{"job": "convert_render" | "encode" | "stream" | "stream_token", …}, …]} → one JSON object of figures.
/// `tokenizer` may be null when no job needs one. Errors: invalid_argument naming the job.
[[nodiscard]] Result<std::string> run_recipe_jobs(const json::Value& jobs, const tokenizer::Tokenizer* tokenizer);

}  // namespace deepinfer::apps
