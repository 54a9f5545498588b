// What a whole request needs around its grammar: free reasoning in front, tool calls in DSML beside or instead of the body.
// Which form a request takes is decided by the caller (server); the text of the forms is structured_output.md, "Tool calls".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "grammar/compile.h"

namespace deepinfer::grammar {

struct ToolDefinition {
  std::string name = {};
  std::string parameters = {};  ///< JSON Schema text; empty: no parameters
  bool is_strict = false;       ///< arguments by schema, closed; otherwise only the form of the call
};

enum class ToolUse {
  none,       ///< no calls
  automatic,  ///< free text (or the body), then perhaps a block of calls
  required,   ///< a block of calls of any of the tools
};

struct CompositeJob {
  struct Body {
    GrammarKind kind = GrammarKind::json_schema;
    std::string text = {};
    CompileOptions options = {};
  };
  std::optional<Body> body = {};
  std::vector<ToolDefinition> tools = {};  ///< for a tool chosen by name: that one alone
  ToolUse tool_use = ToolUse::none;
  bool has_parallel_calls = true;
  /// The block's opening line stands in the prompt already (required calls without reasoning).
  bool block_is_open = false;
  /// Ids that end free reasoning; empty: the text starts without reasoning.
  std::vector<TokenId> reasoning_end_ids = {};
  /// An id after which the first of reasoning_end_ids is forced: the end of a thinking budget.
  std::optional<TokenId> bound_id = {};
  TokenId dsml_token{128825};
  Limits limits = {};
  const std::atomic<bool>* is_cancelled = nullptr;
};

/// Errors as compile(); those of a tool begin with its name.
[[nodiscard]] Compiled<std::shared_ptr<const CompiledGrammar>> compile_composite(const CompositeJob& job);

/// The tools of an array as OpenAI's `tools` has it, or bare {name, parameters, strict}. Errors: invalid_schema naming the place.
[[nodiscard]] Compiled<std::vector<ToolDefinition>> tools_from_json(const json::Value& tools);

}  // namespace deepinfer::grammar
