// Regular expressions as ECMAScript writes them with the `u` flag, into expressions over code points.
// Anchors and lookaround are compiled away exactly or refused; nothing is approximated.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "grammar/compile_error.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

enum class RegexUse {
  whole_text,  ///< the text as a whole must match
  search,      ///< a match somewhere in the text, as `pattern` in JSON Schema
};

/// Errors: `syntax` with line and column (code points, from 1), `unsupported` naming the construct, `limit` for nesting or counts.
[[nodiscard]] Compiled<ExprId> parse_regex(ExprPool& pool, std::string_view pattern, RegexUse use);

}  // namespace deepinfer::grammar
