// What one matcher grows while it runs: its own expression pool, lexer, parser states and kept masks.
// Used by one thread at a time; handed from matcher to matcher by CompiledGrammar.
#pragma once

#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "grammar/lexer.h"
#include "grammar/mask.h"
#include "grammar/states.h"

namespace deepinfer::grammar {

class Runtime {
 public:
  Runtime(const ExprPool& pristine, const Network& network, const Vocabulary& tokens, const RunLimits& bounds)
      : pool(pristine),
        lexer(pool),
        states(network, lexer, bounds.items),
        masks(tokens, lexer, states),
        vocabulary(&tokens),
        limits(bounds) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Time to start afresh.
  [[nodiscard]] bool is_full() const {
    return states.size() > limits.states || lexer.size() > limits.states ||
           states.bytes() + lexer.bytes() + masks.bytes() + pool.bytes() > limits.runtime_bytes;
  }
  [[nodiscard]] std::size_t bytes() const { return sizeof(*this) + states.bytes() + lexer.bytes() + masks.bytes() + pool.bytes(); }
  /// A bound that cannot be helped by starting afresh was hit.
  [[nodiscard]] bool is_exhausted() const { return states.exhausted() || pool.exhausted(); }

  ExprPool pool;
  Lexer lexer;
  States states;
  MaskBuilder masks;
  const Vocabulary* vocabulary;
  RunLimits limits;
};

}  // namespace deepinfer::grammar
