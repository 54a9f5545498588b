// Reading probe requests: options, kinds and id lists out of JSON. Private to the probe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "grammar/compile.h"
#include "grammar/composite.h"

namespace deepinfer::grammar {

[[nodiscard]] Compiled<GrammarKind> kind_from_name(std::string_view name);
/// `options` may be null.
[[nodiscard]] Result<CompileOptions> options_from_json(const json::Value* options);
/// Errors: invalid_argument when the member is there and is no list of non-negative ids.
[[nodiscard]] Result<std::vector<TokenId>> ids_from_json(const json::Value& request, std::string_view member);
enum class CompositeForm {
  tools_text,  ///< `grammar` is the text of a tools array: a block of strict calls
  spec,        ///< `spec` as grammar_probe.md has it
};

[[nodiscard]] Compiled<CompositeJob> composite_from_json(const json::Value& request, CompositeForm form);
[[nodiscard]] json::Value error_json(const CompileError& error);

}  // namespace deepinfer::grammar
