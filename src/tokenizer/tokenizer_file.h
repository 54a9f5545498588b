// Reads tokenizer.json: checks that it is of the family this room encodes and resolves every name in it to an id.
// Not the tables for encoding: those are built from this value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/pre_tokenizer.h"

namespace deepinfer::tokenizer {

/// `left` and `right` side by side become `result`. Token ids.
struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

struct AddedToken {
  std::int32_t id = 0;
  std::string text;
  bool is_special = false;
  bool is_normalized = false;  ///< looked for only in what the other added tokens leave over
};

struct TokenizerFile {
  std::vector<std::string> spellings;         ///< [largest id + 1], added tokens included; "" for an id without a token
  std::int32_t num_model_ids = 0;             ///< largest id of model.vocab + 1; what follows are added tokens
  std::vector<Merge> merges;                  ///< in order of rank
  std::array<std::int32_t, 256> byte_tokens;  ///< token of each single byte
  std::vector<AddedToken> added_tokens;       ///< with the ids that the official loader gives them, distinct texts
  Pattern pattern = Pattern::deepseek;
  bool is_whole_piece_first = false;  ///< model.ignore_merges: a piece that is a token is that token
};

/// Reads a tokenizer.json text; `added_tokens_json` is an overlay as in recipe_probe.md section 8 or empty.
/// Errors: corrupt (not JSON, missing or wrong fields, names without an id), unsupported (another kind of tokenizer).
[[nodiscard]] Result<TokenizerFile> read_tokenizer_file(std::string_view tokenizer_json, std::string_view added_tokens_json);

}  // namespace deepinfer::tokenizer
