// The prompt of a conversation: text, the places of real control tokens, and the images in the order of their placeholders.
// Rendering cannot fail. Behaviour: spec/recipe.md section 2 (official deepseek-recipe 0.2.0).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/special_tokens.h"

namespace deepinfer::tokenizer {
class Tokenizer;
}

namespace deepinfer::recipe {

/// Bytes [begin, end) of a prompt that repeat a generated turn, whose ids they are.
struct GeneratedRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::shared_ptr<const GeneratedTurn> turn;
};

struct Prompt {
  std::string text;                          ///< UTF-8
  std::vector<SpecialRange> special_ranges;  ///< ascending, disjoint; everything between is plain text, but for `generated`
  std::vector<GeneratedRange> generated;     ///< ascending, disjoint from each other and from special_ranges
  std::vector<const ImageSource*> images;    ///< in placeholder order; they belong to the rendered conversation
  std::vector<std::size_t> placeholders;     ///< which of special_ranges stand for the images, ascending
};

/// Spellings come from `special_tokens`, but an image placeholder keeps the spelling it has in its message.
[[nodiscard]] Prompt render(const Conversation& conversation, ModelVersion version, const SpecialTokens& special_tokens = {});

/// Token ids of a prompt: every special range one id, generated ranges their ids, the text between encoded without the added vocabulary,
/// piece by piece; a long text by up to `num_threads` ≥ 1 threads, with the same ids. Error (not_found): the vocabulary has no token of
/// that spelling.
[[nodiscard]] Result<std::vector<TokenId>> encode_prompt(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer,
                                                         std::int32_t num_threads = 1);

/// Ids, and the places among them of the image placeholders, one for each.
struct EncodedPrompt {
  std::vector<TokenId> ids;
  std::vector<std::size_t> placeholders;
};
/// The same, as long as images are still one token each.
[[nodiscard]] Result<EncodedPrompt> encode_illustrated(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer, std::int32_t num_threads = 1);

}  // namespace deepinfer::recipe
