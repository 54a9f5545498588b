#include "tokenizer/text_encoder.h"

#include <algorithm>
#include <memory>

namespace deepinfer::tokenizer {

namespace {

/// For reserving memory only: texts have about one token for this many bytes.
constexpr std::size_t kTypicalTokenBytes = 4;

enum class Which { normalized, verbatim };

std::optional<AddedTokenFinder> finder_of(const TokenizerFile& file, Which which) {
  std::vector<ByteTrie::Entry> tokens;
  for (const AddedToken& token : file.added_tokens) {
    if (token.is_normalized == (which == Which::normalized)) {
      tokens.push_back({.text = token.text, .value = token.id});
    }
  }
  return AddedTokenFinder::build(tokens);
}

/// Calls `on_text` for each stretch between the matches of `finder` and `on_token` for each match, in order.
template <class OnText, class OnToken>
void split_by(const AddedTokenFinder& finder, std::string_view text, const OnText& on_text, const OnToken& on_token) {
  std::size_t begin = 0;
  while (const std::optional<AddedTokenMatch> match = finder.find_first(text, begin)) {
    on_text(text.substr(begin, match->begin - begin));
    on_token(match->id);
    begin = match->end;
  }
  on_text(text.substr(begin));
}

}  // namespace

std::optional<TextEncoder> TextEncoder::build(const TokenizerFile& file) {
  std::optional<BytePairEncoder> encoder = BytePairEncoder::build(file);
  std::optional<AddedTokenFinder> verbatim = finder_of(file, Which::verbatim);
  std::optional<AddedTokenFinder> normalized = finder_of(file, Which::normalized);
  if (!encoder || !verbatim || !normalized) {
    return std::nullopt;
  }
  return TextEncoder(std::move(*encoder), PreTokenizer(file.pattern, std::make_shared<const CharClasses>()), std::move(*verbatim),
                     std::move(*normalized));
}

template <class OnText, class OnToken>
void TextEncoder::split(std::string_view text, AddedTokens mode, const OnText& on_text, const OnToken& on_token) const {
  if (mode == AddedTokens::ignore) {
    on_text(text);
    return;
  }
  split_by(
      verbatim_, text, [&](std::string_view part) { split_by(normalized_, part, on_text, on_token); }, on_token);
}

std::vector<TokenId> TextEncoder::encode(std::string_view text, AddedTokens mode) const {
  std::vector<TokenId> out;
  out.reserve(text.size() / kTypicalTokenBytes + 1);
  BytePairEncoder::Scratch scratch;
  split(
      text, mode, [&](std::string_view part) { append_plain(part, scratch, out); }, [&](TokenId id) { out.push_back(id); });
  return out;
}

void TextEncoder::append_plain(std::string_view text, BytePairEncoder::Scratch& scratch, std::vector<TokenId>& out) const {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pre_tokenizer_.piece_end(text, begin);
    encoder_.encode(text.substr(begin), end - begin, scratch, out);
    begin = end;
  }
}

std::vector<std::size_t> TextEncoder::cuts(std::string_view text, AddedTokens mode, std::size_t part_bytes) const {
  std::vector<std::size_t> out;
  std::size_t wanted = part_bytes;  // where the next cut would be best
  const auto cut_stretch = [&](std::string_view stretch) {
    const auto begin = static_cast<std::size_t>(stretch.data() - text.data());
    const std::size_t end = begin + stretch.size();
    while (wanted <= end) {
      // The end of a stretch is the start of an added token: a border too.
      const std::size_t cut = wanted <= begin ? begin : begin + pre_tokenizer_.certain_border(stretch, wanted - begin);
      if (cut < text.size()) {
        out.push_back(cut);
      }
      wanted = std::max(wanted, cut) + part_bytes;
    }
  };
  split(text, mode, cut_stretch, [](TokenId) {});
  return out;
}

std::optional<TokenId> TextEncoder::find(std::string_view token) const {
  const std::optional<TokenId> found = verbatim_.find_exact(token);
  return found ? found : normalized_.find_exact(token);
}

}  // namespace deepinfer::tokenizer
