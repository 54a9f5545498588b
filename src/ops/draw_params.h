// Parameters of the operation that turns rows of logits into tokens. Device memory, rules and language as in ops.h.
#pragma once

#include <cstdint>

namespace deepinfer {

/// How the token behind one row is drawn: the coupled rule (docs/spec/engine.md 9.2, 11.1). Values as in sampling/params.h.
struct TokenDraw {
  double temperature = 1.0, top_p = 1.0, min_p = 0.0;
  std::uint64_t seed = 0;
  std::int64_t position = 0;  ///< of the token
  std::int32_t top_k = -1;
  std::int32_t mask = -1;  ///< line of DrawTokensParams::masks; -1: every column is allowed
};

/// Instead of a token: the row has a NaN or +infinity; no column is allowed.
inline constexpr std::int32_t kRowNotFinite = -1, kNothingAllowed = -2;

/// The bits of sampling::Sampler behind sampling::mask_row on every back end.
struct DrawTokensParams {
  std::int32_t num_rows = 0, vocab = 0;
  const float* logits = nullptr;            // [.., vocab]
  const std::int32_t* row_index = nullptr;  // [rows] row of logits for each draw; null: 0, 1, 2, ...
  const TokenDraw* draw = nullptr;          // [rows]
  const std::uint32_t* masks = nullptr;     // [.., ceil(vocab / 32)] bit c mod 32 of word c / 32: column c is allowed
  std::int32_t* token = nullptr;            // out [rows]
  bool always = false;                      // rows without a token give column 0: proposals that something must follow
};

}  // namespace deepinfer
