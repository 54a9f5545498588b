#include "tokenizer/tokenizer.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer::tokenizer {

namespace {

Vocabulary vocabulary_of(const TokenizerFile& file) {
  std::vector<bool> is_special(file.spellings.size());
  for (const AddedToken& token : file.added_tokens) {
    is_special[static_cast<std::size_t>(token.id)] = token.is_special;
  }
  return Vocabulary(file.spellings, std::move(is_special));
}

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

}  // namespace

struct Tokenizer::Tables {
  /// Appends the ids of text without added tokens.
  void encode_plain(std::string_view text, BytePairEncoder::Scratch& scratch, std::vector<TokenId>& out) const {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = pre_tokenizer.piece_end(text, begin);
      encoder.encode(text.substr(begin), end - begin, scratch, out);
      begin = end;
    }
  }

  /// Appends the ids of text in which `finder`'s tokens are cut out; `rest` encodes what is between them.
  template <class Rest>
  static void encode_around(const AddedTokenFinder& finder, std::string_view text, std::vector<TokenId>& out, const Rest& rest) {
    std::size_t begin = 0;
    while (const std::optional<AddedTokenMatch> match = finder.find_first(text, begin)) {
      rest(text.substr(begin, match->begin - begin));
      out.push_back(match->id);
      begin = match->end;
    }
    rest(text.substr(begin));
  }

  Vocabulary vocabulary;
  BytePairEncoder encoder;
  PreTokenizer pre_tokenizer;
  AddedTokenFinder verbatim;    // looked for first
  AddedTokenFinder normalized;  // looked for in what the others leave over
};

Tokenizer::Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  std::ifstream stream(tokenizer_json, std::ios::binary);
  if (!stream) {
    return fail(ErrorKind::not_found, "cannot open " + tokenizer_json.string());
  }
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) {
    return fail(ErrorKind::io, "cannot read " + tokenizer_json.string());
  }
  Result<Tokenizer> out = parse(text);
  if (!out) {
    return fail(std::move(out.error()), tokenizer_json.string());
  }
  return out;
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view added_tokens_json) {
  const Result<TokenizerFile> file = read_tokenizer_file(tokenizer_json, added_tokens_json);
  if (!file) {
    return std::unexpected(file.error());
  }
  std::optional<AddedTokenFinder> verbatim = finder_of(*file, Which::verbatim);
  std::optional<AddedTokenFinder> normalized = finder_of(*file, Which::normalized);
  std::optional<BytePairEncoder> encoder = BytePairEncoder::build(*file);
  if (!verbatim || !normalized || !encoder) {
    return fail(ErrorKind::unsupported, "the tokens of the vocabulary are too many or too long");
  }
  return Tokenizer(
      std::make_shared<const Tables>(Tables{.vocabulary = vocabulary_of(*file),
                                            .encoder = std::move(*encoder),
                                            .pre_tokenizer = PreTokenizer(file->pattern, std::make_shared<const CharClasses>()),
                                            .verbatim = std::move(*verbatim),
                                            .normalized = std::move(*normalized)}));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokens mode) const {
  std::vector<TokenId> out;
  BytePairEncoder::Scratch scratch;
  const auto plain = [&](std::string_view part) { tables_->encode_plain(part, scratch, out); };
  if (mode == AddedTokens::ignore) {
    plain(text);
    return out;
  }
  Tables::encode_around(tables_->verbatim, text, out,
                        [&](std::string_view part) { Tables::encode_around(tables_->normalized, part, out, plain); });
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens mode) const {
  std::string out;
  for (const TokenId id : ids) {
    if (mode == SpecialTokens::keep || !is_special(id)) {
      out.append(bytes(id));
    }
  }
  return utf8::is_valid(out) ? out : utf8::replace_invalid(out);
}

std::string_view Tokenizer::bytes(TokenId id) const { return tables_->vocabulary.bytes(id); }

std::string Tokenizer::spelling(TokenId id) const { return tables_->vocabulary.spelling(id); }

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const std::optional<TokenId> found = tables_->verbatim.find_exact(token);
  return found ? found : tables_->normalized.find_exact(token);
}

bool Tokenizer::is_special(TokenId id) const { return tables_->vocabulary.is_special(id); }

std::int32_t Tokenizer::vocab_size() const { return tables_->vocabulary.size(); }

}  // namespace deepinfer::tokenizer
