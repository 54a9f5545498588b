// Small vocabularies, shorthand for compiling and matching, and masks by brute force.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace deepinfer::grammar::testing {

inline constexpr TokenId kEnd{0};

/// Id 0 ends the text, id 1 is a control token `<ctl>`; then every byte, then `words`.
inline std::shared_ptr<const Vocabulary> vocabulary_of(const std::vector<std::string>& words) {
  std::vector<VocabularyToken> tokens{{"<end>", true}, {"<ctl>", true}};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back({std::string(1, static_cast<char>(byte)), false});
  }
  for (const std::string& word : words) {
    tokens.push_back({word, false});
  }
  const auto size = static_cast<std::int32_t>(tokens.size());
  return std::make_shared<const Vocabulary>(std::move(tokens), size + 5);
}

inline Compiled<std::shared_ptr<const CompiledGrammar>> try_compile(GrammarKind kind, std::string_view text, CompileOptions options = {}) {
  return compile({.kind = kind, .text = text, .options = std::move(options), .limits = {}});
}

inline Matcher matcher_of(std::shared_ptr<const CompiledGrammar> grammar, std::shared_ptr<const Vocabulary> vocabulary) {
  return Matcher(std::move(grammar), std::move(vocabulary), {.end_ids = {kEnd}, .trigger_ids = {}, .bound_id = {}});
}

/// The whole text is in the language.
inline bool matches(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  static const std::shared_ptr<const Vocabulary> kBytes = vocabulary_of({});
  Matcher matcher = matcher_of(grammar, kBytes);
  return matcher.match_bytes(text).complete;
}

/// Every ordinary token whose bytes the byte matcher takes, and the end id when the text so far is complete.
inline std::vector<std::uint32_t> brute_force_mask(Matcher& matcher, const Vocabulary& vocabulary) {
  std::vector<std::uint32_t> mask(vocabulary.mask_words());
  for (std::int32_t id = 0; id < vocabulary.num_rows(); ++id) {
    const std::string_view text = vocabulary.text(TokenId{id});
    const bool is_allowed = id == kEnd.value ? matcher.can_end() : !text.empty() && matcher.match_bytes(text).accepted == text.size();
    if (is_allowed) {
      mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
    }
  }
  return mask;
}

}  // namespace deepinfer::grammar::testing
