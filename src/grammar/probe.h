// The line protocol of `deepinfer grammar probe` (grammar_probe.md): one JSON request line to one JSON answer line.
// Not input and output: apps/ reads and writes the lines, loads the tokenizer and parses flags.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compile.h"
#include "grammar/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::grammar {

enum class ProbeClock { cpu, wall };

struct ProbeOptions {
  std::int32_t vocab_size = 0;   ///< rows of the logits; 0: the tokenizer's size
  std::vector<TokenId> end_ids;  ///< empty: the id of the tokenizer's end-of-sentence token
  std::int32_t num_threads = 1;  ///< for `batch`
  ProbeClock clock = ProbeClock::cpu;
  Limits limits;
  std::string version;
};

/// Limits with the members of `overrides` (names as in structured_output.md) replaced. Errors: invalid_argument naming the member.
[[nodiscard]] Result<Limits> limits_from_json(std::string_view overrides, Limits base);

class ProbeSession {
 public:
  ProbeSession(const tokenizer::Tokenizer& tokenizer, ProbeOptions options);
  ~ProbeSession();
  ProbeSession(ProbeSession&&) noexcept;

  /// The first line of output.
  [[nodiscard]] std::string ready_line() const;
  /// The answer to one request line, without a line break; nullopt for `quit`. Every failure is an answer.
  [[nodiscard]] std::optional<std::string> answer(std::string_view line);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::grammar
