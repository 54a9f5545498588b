// The syntax tree of an EBNF text. Not its meaning: that is ebnf.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/budget.h"
#include "grammar/compile_error.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

enum class EbnfKind : std::uint8_t {
  lexeme,  ///< an expression of its own: a string, a class, a Regex macro
  sequence,
  alternatives,
  repeat,
  rule,
  token,         ///< Token(id)
  tag_dispatch,  ///< children: pairs of tag lexeme and rule; see TagDispatch
};

struct EbnfItem {
  EbnfKind kind = EbnfKind::sequence;
  ExprId expr = 0;                        ///< lexeme; tag_dispatch: excluded texts
  std::vector<std::uint32_t> children{};  ///< items
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  std::uint32_t rule = 0;
  std::int32_t token = 0;
  bool loops = true;  ///< tag_dispatch: free text goes on behind a rule
};

struct EbnfGrammar {
  std::vector<EbnfItem> items;
  std::vector<std::string> names;     ///< by rule
  std::vector<std::uint32_t> bodies;  ///< by rule: item
  std::uint32_t root = 0;
};

[[nodiscard]] Compiled<EbnfGrammar> parse_ebnf(ExprPool& pool, std::string_view text, const Budget& budget);

}  // namespace deepinfer::grammar
