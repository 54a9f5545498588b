// Matcher: follows one request's output through its grammar, token by token. Owned by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

struct MatcherOptions {
  /// Ids that end the text: the model's and the caller's. Allowed exactly when the text is complete.
  std::vector<TokenId> end_ids = {};
  /// The grammar starts behind this id sequence; empty: at once. Until then every id is allowed, and an end id that is not part of
  /// the sequence ends the text.
  std::vector<TokenId> trigger_ids = {};
  /// Once this id appears, the trigger is forced id by id. Needs a trigger.
  std::optional<TokenId> bound_id = {};
};

class Matcher {
 public:
  Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::shared_ptr<const Vocabulary> vocabulary, MatcherOptions options);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) = delete;

  /// One bit an id, bit i % 32 of word i / 32; `mask` has vocabulary.mask_words() words. All ones behind an end id.
  void fill_mask(std::span<std::uint32_t> mask);
  /// Takes one token; false (and no change) when the grammar refuses it. Behind an end id everything is taken and ignored.
  bool accept(TokenId id);
  /// Undoes the last `count` accepted tokens, end ids included; count is at most num_accepted().
  void rollback(std::size_t count);
  [[nodiscard]] std::size_t num_accepted() const { return tokens_.size(); }

  /// The text is complete: an end id would be taken.
  [[nodiscard]] bool can_end();
  /// Complete, and nothing but an end id can follow.
  [[nodiscard]] bool is_finished();
  /// An end id was taken.
  [[nodiscard]] bool has_ended() const { return !steps_.empty() && steps_.back().phase == Phase::ended; }
  /// The longest byte string every continuation begins with, cut at `max_bytes`; empty when nothing is forced.
  [[nodiscard]] std::string forced(std::size_t max_bytes = kMaxForcedBytes);
  /// The id every continuation begins with when it is not text: of the trigger, or a control token.
  [[nodiscard]] std::optional<TokenId> forced_token();
  /// A limit was hit; masks are void and the request must end with an error.
  [[nodiscard]] bool is_exhausted() const;

  /// Bytes without tokens (the probe's `match`): how many of `text` can be taken from here, and whether all of it is complete.
  struct ByteMatch {
    std::size_t accepted = 0;
    bool complete = false;
  };
  [[nodiscard]] ByteMatch match_bytes(std::string_view text);

 private:
  /// Longer would not fit one prefill step anyway.
  static constexpr std::size_t kMaxForcedBytes = 65536;

  enum class Phase : std::uint8_t { free, forced, grammar, ended };
  struct Step {
    std::uint32_t set = 0;       // parser state in the grammar phase
    std::uint32_t progress = 0;  // trigger ids seen, otherwise
    Phase phase = Phase::grammar;
  };

  [[nodiscard]] Step current() const;
  [[nodiscard]] std::optional<Step> after(const Step& from, TokenId id);
  [[nodiscard]] Step after_free(const Step& from, TokenId id) const;
  [[nodiscard]] bool is_end(TokenId id) const;
  void refresh();

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  MatcherOptions options_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<TokenId> tokens_;
  std::vector<Step> steps_;  // after each token
};

}  // namespace deepinfer::grammar
