// Random regular expressions, EBNF grammars and JSON Schemas, each with the same language as a SlowGrammar.
#pragma once

#include <random>
#include <string>

#include "grammar/compile.h"
#include "slow_grammar.h"

namespace deepinfer::grammar::testing {

struct RandomGrammar {
  GrammarKind kind = GrammarKind::regex;
  std::string text = {};
  CompileOptions options = {};
  SlowGrammar slow = {};
  int root = 0;
};

[[nodiscard]] RandomGrammar random_regex(std::mt19937& random);
/// The root may have no finite text at all.
[[nodiscard]] RandomGrammar random_ebnf(std::mt19937& random);
/// Compact layout; objects closed, properties in order; strings with every escape.
[[nodiscard]] RandomGrammar random_schema(std::mt19937& random);

}  // namespace deepinfer::grammar::testing
