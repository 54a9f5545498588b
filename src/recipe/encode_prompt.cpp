#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/render.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

namespace {

/// Appends to the ids of one prompt.
class PromptIds {
 public:
  PromptIds(const tokenizer::Tokenizer& tokenizer, std::int32_t num_threads) : tokenizer_(tokenizer), num_threads_(num_threads) {}

  void reserve(std::size_t num_ids) { ids_.reserve(num_ids); }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  void token(TokenId id) { ids_.push_back(id); }
  void append(std::span<const TokenId> ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }
  void plain(std::string_view text) {
    if (!text.empty()) {
      append(tokenizer_.encode(text, tokenizer::AddedTokens::ignore, num_threads_));
    }
  }
  [[nodiscard]] std::vector<TokenId> take() && { return std::move(ids_); }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  std::int32_t num_threads_;
  std::vector<TokenId> ids_;
};

}  // namespace

Result<std::vector<TokenId>> encode_prompt(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer, std::int32_t num_threads) {
  auto encoded = encode_illustrated(prompt, tokenizer, num_threads);
  return encoded ? Result<std::vector<TokenId>>(std::move(encoded->ids)) : std::unexpected(std::move(encoded.error()));
}

Result<EncodedPrompt> encode_illustrated(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer, std::int32_t num_threads) {
  constexpr std::size_t kBytesPerToken = 3;  // usual for mixed text; only a reservation
  const std::string_view text = prompt.text;
  std::vector<std::size_t> placeholders;
  PromptIds ids(tokenizer, num_threads);
  ids.reserve(text.size() / kBytesPerToken);
  std::size_t done = 0;
  auto generated = prompt.generated.begin();
  const auto append_generated_before = [&](std::size_t offset) {
    for (; generated != prompt.generated.end() && generated->begin < offset; ++generated) {
      ids.plain(text.substr(done, generated->begin - done));
      ids.append(generated->turn->ids);
      done = generated->end;
    }
  };
  auto placeholder = prompt.placeholders.begin();
  for (std::size_t i = 0; i < prompt.special_ranges.size(); ++i) {
    const SpecialRange& range = prompt.special_ranges[i];
    append_generated_before(range.begin);
    ids.plain(text.substr(done, range.begin - done));
    const std::string_view spelling = text.substr(range.begin, range.end - range.begin);
    const std::optional<TokenId> id = tokenizer.find(spelling);
    if (!id) {
      return fail(ErrorKind::not_found, "the vocabulary has no token `" + std::string(spelling) + "`");
    }
    if (placeholder != prompt.placeholders.end() && *placeholder == i) {
      placeholders.push_back(ids.size());
      ++placeholder;
    }
    ids.token(*id);
    done = range.end;
  }
  append_generated_before(text.size());
  ids.plain(text.substr(done));
  return EncodedPrompt{.ids = std::move(ids).take(), .placeholders = std::move(placeholders)};
}

}  // namespace deepinfer::recipe
