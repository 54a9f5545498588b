// The formats JSON Schema defines, as expressions over the decoded string. Calendar rules included.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/expr.h"

namespace deepinfer::grammar {

enum class FormatStanding {
  enforced,     ///< format_expr has it
  unsupported,  ///< a draft defines it, but it cannot be enforced
  unknown,      ///< no draft defines it: an annotation
};

[[nodiscard]] FormatStanding format_standing(std::string_view name);
/// The language of an enforced format.
[[nodiscard]] ExprId format_expr(ExprPool& pool, std::string_view name);

}  // namespace deepinfer::grammar
