#include "tokenizer/reference_tokenizer.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <memory>
#include <span>

#include "base/check.h"

namespace deepinfer::tokenizer::testing {

namespace {

std::vector<icu::UnicodeString> split(const icu::UnicodeString& text, const char* pattern) {
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher =
      std::make_unique<icu::RegexMatcher>(icu::UnicodeString::fromUTF8(pattern), text, 0, error);
  check(U_SUCCESS(error) != 0, "the pattern is a regular expression");
  std::vector<icu::UnicodeString> out;
  // Copies: a piece outlives the text that it is cut from.
  const auto add = [&](std::int32_t begin, std::int32_t end) {
    if (begin < end) {
      out.emplace_back(text, begin, end - begin);
    }
  };
  std::int32_t end = 0;
  while (matcher->find() != 0) {
    const std::int32_t begin = matcher->start(error);
    add(end, begin);
    end = matcher->end(error);
    add(begin, end);
  }
  add(end, text.length());
  return out;
}

// ICU's \s has no U+0085; [\p{White_Space}] is what the official engine's \s means.
constexpr const char* kDeepseek[] = {
    "\\p{N}{1,3}",
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\\r\\n]*|\\p{White_Space}*[\\r\\n]+|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+",
};
constexpr const char* kGpt2[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
    "?[^\\p{White_Space}\\p{L}\\p{N}]+|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+",
};

}  // namespace

std::vector<std::string> reference_pieces(Pattern pattern, std::string_view text) {
  const icu::StringPiece bytes(text.data(), static_cast<std::int32_t>(text.size()));
  std::vector<icu::UnicodeString> pieces{icu::UnicodeString::fromUTF8(bytes)};
  const std::span<const char* const> steps =
      pattern == Pattern::deepseek ? std::span<const char* const>(kDeepseek) : std::span<const char* const>(kGpt2);
  for (const char* step : steps) {
    std::vector<icu::UnicodeString> next;
    for (const icu::UnicodeString& piece : pieces) {
      for (icu::UnicodeString& part : split(piece, step)) {
        next.push_back(std::move(part));
      }
    }
    pieces = std::move(next);
  }
  std::vector<std::string> out;
  for (const icu::UnicodeString& piece : pieces) {
    piece.toUTF8String(out.emplace_back());
  }
  return out;
}

ReferenceBpe::ReferenceBpe(const TokenizerFile& file) : file_(file) {
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    ranks_[{file.merges[rank].left, file.merges[rank].right}] = rank;
  }
}

std::vector<std::int32_t> ReferenceBpe::encode(std::string_view piece) const {
  std::vector<std::int32_t> tokens;
  for (const char byte : piece) {
    tokens.push_back(file_.byte_tokens[static_cast<unsigned char>(byte)]);
  }
  for (;;) {
    std::size_t best_rank = file_.merges.size();
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ranks_.find({tokens[i], tokens[i + 1]});
      if (found != ranks_.end() && found->second < best_rank) {
        best_rank = found->second;
        best_at = i;
      }
    }
    if (best_rank == file_.merges.size()) {
      return tokens;
    }
    tokens[best_at] = file_.merges[best_rank].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

}  // namespace deepinfer::tokenizer::testing
