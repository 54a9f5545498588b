// Times the recipe on given jobs in one thread: `deepinfer recipe bench` (spec/recipe_probe.md section 9).
// Reading the job file and printing the figures belong to apps/.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

/// Runs the jobs of `{"jobs":[...]}` and gives the best of several rounds of each: `convert_render_us`, `encode_mb_s`, `stream_us`,
/// `stream_token_us`. Errors: what is wrong with the job file, or a request that conversion refuses.
[[nodiscard]] Result<json::Value> run_bench(const tokenizer::Tokenizer& tokenizer, std::string_view jobs_json);

}  // namespace deepinfer::recipe
