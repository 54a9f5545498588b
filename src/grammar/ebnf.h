// EBNF in the dialect of structured_output.md, into a network. Rules without recursion become lexemes.
#pragma once

#include <string_view>

#include "grammar/budget.h"
#include "grammar/compile_error.h"
#include "grammar/expr.h"
#include "grammar/network.h"

namespace deepinfer::grammar {

/// The rule `root` in `builder`. Errors: `syntax` with line and column, `unsupported` naming the macro, `limit`.
[[nodiscard]] Compiled<RuleId> emit_ebnf(ExprPool& pool, NetworkBuilder& builder, std::string_view text, const Budget& budget);

}  // namespace deepinfer::grammar
