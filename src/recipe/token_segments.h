// From the ids of a reply to the segments the parser reads: runs of ordinary ids decoded together, control ids alone.
// Not incremental by character like tokenizer/detokenizer.h: a run waits as a whole until its text is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "recipe/reply_stages.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

/// Log probability of one generated id and of the most likely ids at its place.
struct TokenLogprob {
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;
};

/// A run of ids as text. Views live until the next call of the object that gave them.
struct TokenSegment {
  std::string_view text;  ///< valid UTF-8, may be empty
  SegmentKind kind = SegmentKind::token_text;
  std::uint32_t num_tokens = 0;
  std::string_view logprobs;  ///< JSON array with one object per id; empty when an id came without
};

class TokenSegments {
 public:
  /// `tokenizer` must outlive the object.
  explicit TokenSegments(const tokenizer::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// Adds the ids of one chunk. `logprobs`: one per id, or null when the chunk has none. Both must outlive the calls of take().
  /// Afterwards take() until it gives nothing; ids whose text is incomplete then wait for the next chunk.
  void push(std::span<const TokenId> ids, const std::vector<TokenLogprob>* logprobs);

  /// The next segment that is complete.
  [[nodiscard]] std::optional<TokenSegment> take();

 private:
  [[nodiscard]] bool is_control(TokenId id) const;
  [[nodiscard]] TokenSegment take_control();
  [[nodiscard]] std::optional<TokenSegment> take_run(bool at_control);
  void add_to_run(std::size_t index);

  const tokenizer::Tokenizer* tokenizer_;

  std::span<const TokenId> ids_;  // of the chunk being taken, from next_ on
  const std::vector<TokenLogprob>* logprobs_ = nullptr;
  std::size_t next_ = 0;

  std::string run_;  // bytes of the ordinary ids that wait
  std::string run_logprobs_;
  std::uint32_t run_tokens_ = 0;
  bool run_has_logprobs_ = true;

  std::string text_;  // behind the views of the last segment
  std::string text_logprobs_;
};

/// Appends a float as the official package does: shortest digits, an exponent outside [1e-6, 1e13); null when not finite.
void append_float(std::string& out, float value);

/// Appends the JSON object of one id: `token` (bytes that are no UTF-8 as \xHH each), `logprob`, `bytes`, `top_logprobs`.
void append_logprob(std::string& out, const tokenizer::Tokenizer& tokenizer, TokenId id, const TokenLogprob& logprob);

}  // namespace deepinfer::recipe
