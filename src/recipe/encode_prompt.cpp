#include <string>
#include <utility>

#include "recipe/render.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

namespace {

void append_plain(std::vector<TokenId>& ids, std::string_view text, const tokenizer::Tokenizer& tokenizer) {
  if (!text.empty()) {
    const std::vector<TokenId> piece = tokenizer.encode(text, tokenizer::AddedTokens::ignore);
    ids.insert(ids.end(), piece.begin(), piece.end());
  }
}

}  // namespace

Result<std::vector<TokenId>> encode_prompt(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
  auto encoded = encode_illustrated(prompt, tokenizer);
  return encoded ? Result<std::vector<TokenId>>(std::move(encoded->ids)) : std::unexpected(std::move(encoded.error()));
}

Result<EncodedPrompt> encode_illustrated(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
  constexpr std::size_t kBytesPerToken = 3;  // usual for mixed text; only a reservation
  const std::string_view text = prompt.text;
  EncodedPrompt out;
  std::vector<TokenId>& ids = out.ids;
  ids.reserve(text.size() / kBytesPerToken);
  std::size_t done = 0;
  auto generated = prompt.generated.begin();
  const auto append_generated_before = [&](std::size_t offset) {
    for (; generated != prompt.generated.end() && generated->begin < offset; ++generated) {
      append_plain(ids, text.substr(done, generated->begin - done), tokenizer);
      ids.insert(ids.end(), generated->turn->ids.begin(), generated->turn->ids.end());
      done = generated->end;
    }
  };
  auto placeholder = prompt.placeholders.begin();
  for (std::size_t i = 0; i < prompt.special_ranges.size(); ++i) {
    const SpecialRange& range = prompt.special_ranges[i];
    append_generated_before(range.begin);
    append_plain(ids, text.substr(done, range.begin - done), tokenizer);
    const std::string_view spelling = text.substr(range.begin, range.end - range.begin);
    const std::optional<TokenId> id = tokenizer.find(spelling);
    if (!id) {
      return fail(ErrorKind::not_found, "the vocabulary has no token `" + std::string(spelling) + "`");
    }
    if (placeholder != prompt.placeholders.end() && *placeholder == i) {
      out.placeholders.push_back(ids.size());
      ++placeholder;
    }
    ids.push_back(*id);
    done = range.end;
  }
  append_generated_before(text.size());
  append_plain(ids, text.substr(done), tokenizer);
  return out;
}

}  // namespace deepinfer::recipe
