// The line protocol of `deepinfer recipe probe` (spec/recipe_probe.md): one JSON request line to one JSON answer line.
// A test door. Reading and writing lines belongs to apps/.
#pragma once

#include <string>
#include <string_view>

#include "recipe/conformance.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct ProbeContext {
  Conformance conformance = Conformance::official;
  const tokenizer::Tokenizer* tokenizer = nullptr;  ///< not owned; without one, operations that need it answer an error
};

/// The answer to one request line, without a line break. Never fails: what is wrong is part of the answer.
[[nodiscard]] std::string answer_probe_line(const ProbeContext& context, std::string_view line);

}  // namespace deepinfer::recipe
