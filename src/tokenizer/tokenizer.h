// Text to token ids and back: byte-level BPE as tokenizer.json describes it, exact to the official encoder.
// Not prompts (recipe/), not streams of ids to text (detokenizer.h). Source: recipe.md section 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace deepinfer::tokenizer {

enum class AddedTokens {
  recognise,  ///< a spelling of an added token becomes its id
  ignore,     ///< added-token spellings are plain text
};

enum class SpecialTokens { keep, skip };

/// Immutable; copies share their tables, so it is passed by value or reference between threads at will.
class Tokenizer {
 public:
  /// Reads a tokenizer.json file. Errors: not_found or io for the file, and those of parse() with the path in front.
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);

  /// `tokenizer_json` is the text of the file; `added_tokens_json` is empty or an overlay of added tokens
  /// (recipe_probe.md section 8). Errors: corrupt (not valid), unsupported (another kind of tokenizer; says which part).
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view added_tokens_json = {});

  /// Ids of `text`, which is expected to be UTF-8; bytes that are not are encoded as the bytes they are.
  /// Adds no begin-of-sentence token. Time linear in the text.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text, AddedTokens mode) const;
  /// The same ids, a long text by up to `num_threads` ≥ 1 threads.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text, AddedTokens mode, std::int32_t num_threads) const;

  /// Text of `ids`: their bytes with ill-formed UTF-8 replaced by U+FFFD. Ids without a token count as empty.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, SpecialTokens mode) const;

  /// Raw bytes of one token, any part of a UTF-8 character; "" for ids without a token.
  [[nodiscard]] std::string_view bytes(TokenId id) const;

  /// The text that the vocabulary has for a token: its bytes in the GPT-2 byte alphabet, or an added token's own text.
  [[nodiscard]] std::string spelling(TokenId id) const;

  /// Added token by its text, e.g. "<｜User｜>"; nullopt for any other text.
  [[nodiscard]] std::optional<TokenId> find(std::string_view token) const;

  [[nodiscard]] bool is_special(TokenId id) const;

  /// Whether the bytes of a token are well-formed UTF-8 by themselves; true for ids without a token.
  [[nodiscard]] bool is_text(TokenId id) const;

  /// Largest id + 1.
  [[nodiscard]] std::int32_t vocab_size() const;

 private:
  struct Tables;

  explicit Tokenizer(std::shared_ptr<const Tables> tables);

  std::shared_ptr<const Tables> tables_;
};

}  // namespace deepinfer::tokenizer
