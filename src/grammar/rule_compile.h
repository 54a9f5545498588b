// One grammar of any kind as a rule of a network that others may share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/budget.h"
#include "grammar/compile.h"
#include "grammar/network.h"

namespace deepinfer::grammar {

/// Expression nodes a compile may make; about 100 bytes each, so well inside `compiled_bytes`.
inline constexpr std::uint32_t kMaxCompileNodes = 600'000;

struct RuleTarget {
  ExprPool& pool;
  NetworkBuilder& builder;
  const CompileOptions& options;
  const Budget& budget;
};

/// Appends what was ignored to `warnings`.
[[nodiscard]] Compiled<RuleId> emit_grammar(const RuleTarget& target, GrammarKind kind, std::string_view text,
                                            std::vector<std::string>& warnings);

}  // namespace deepinfer::grammar
