#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/text_encoder.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer::tokenizer {

namespace {

/// Shorter parts cost more in threads than they save.
constexpr std::size_t kMinPartBytes = 1 << 16;
/// More parts than threads, so that a slow part does not hold up the others.
constexpr std::size_t kPartsPerThread = 4;
/// For reserving memory only.
constexpr std::size_t kTypicalTokenBytes = 5;

Vocabulary vocabulary_of(const TokenizerFile& file) {
  std::vector<bool> is_special(file.spellings.size());
  for (const AddedToken& token : file.added_tokens) {
    is_special[static_cast<std::size_t>(token.id)] = token.is_special;
  }
  return Vocabulary(file.spellings, is_special);
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return fail(ErrorKind::not_found, "cannot open " + path.string());
  }
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return fail(ErrorKind::io, "cannot read " + path.string() + ": " + error.message());
  }
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (!stream) {
    return fail(ErrorKind::io, "cannot read all of " + path.string());
  }
  return text;
}

}  // namespace

struct Tokenizer::Tables {
  Vocabulary vocabulary;
  TextEncoder encoder;
};

Tokenizer::Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const Result<std::string> text = read_file(tokenizer_json);
  if (!text) {
    return std::unexpected(text.error());
  }
  Result<Tokenizer> out = parse(*text);
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
  std::optional<TextEncoder> encoder = TextEncoder::build(*file);
  if (!encoder) {
    return fail(ErrorKind::unsupported, "the tokens of tokenizer.json are too many or too long");
  }
  return Tokenizer(std::make_shared<const Tables>(Tables{.vocabulary = vocabulary_of(*file), .encoder = std::move(*encoder)}));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokens mode) const { return tables_->encoder.encode(text, mode); }

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokens mode, std::int32_t num_threads) const {
  check(num_threads >= 1, "encoding takes at least one thread");
  if (num_threads == 1 || text.size() < 2 * kMinPartBytes) {
    return encode(text, mode);
  }
  const std::size_t num_parts = static_cast<std::size_t>(num_threads) * kPartsPerThread;
  std::vector<std::size_t> borders = tables_->encoder.cuts(text, mode, std::max(kMinPartBytes, text.size() / num_parts));
  borders.insert(borders.begin(), 0);
  borders.push_back(text.size());
  std::vector<std::vector<TokenId>> parts(borders.size() - 1);
  std::atomic<std::size_t> next_part = 0;
  const auto work = [&] {
    for (std::size_t i = next_part++; i < parts.size(); i = next_part++) {
      parts[i] = encode(text.substr(borders[i], borders[i + 1] - borders[i]), mode);
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < std::min(static_cast<std::size_t>(num_threads), parts.size())) {
        threads.emplace_back(work);
      }
    } catch (const std::system_error&) {
      // The operating system has no thread left: those that there are do the work.
    }
    work();
  }
  std::vector<TokenId> out;
  for (const std::vector<TokenId>& part : parts) {
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens mode) const {
  const Vocabulary& vocabulary = tables_->vocabulary;
  std::string out;
  out.reserve(ids.size() * kTypicalTokenBytes);
  bool is_text = true;
  for (const TokenId id : ids) {
    if (mode == SpecialTokens::keep || !vocabulary.is_special(id)) {
      out.append(vocabulary.bytes(id));
      is_text = is_text && vocabulary.is_text(id);
    }
  }
  return is_text || utf8::is_valid(out) ? out : utf8::replace_invalid(out);
}

std::string_view Tokenizer::bytes(TokenId id) const { return tables_->vocabulary.bytes(id); }

std::string Tokenizer::spelling(TokenId id) const { return tables_->vocabulary.spelling(id); }

std::optional<TokenId> Tokenizer::find(std::string_view token) const { return tables_->encoder.find(token); }

bool Tokenizer::is_text(TokenId id) const { return tables_->vocabulary.is_text(id); }

bool Tokenizer::is_special(TokenId id) const { return tables_->vocabulary.is_special(id); }

std::int32_t Tokenizer::vocab_size() const { return tables_->vocabulary.size(); }

}  // namespace deepinfer::tokenizer
