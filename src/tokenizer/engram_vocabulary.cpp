#include "tokenizer/engram_vocabulary.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "base/utf8.h"

namespace deepinfer::tokenizer {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// NFKC, then NFD, marks dropped, each character lowercase.
class Folder {
 public:
  Folder() {
    UErrorCode error = U_ZERO_ERROR;
    nfkc_ = icu::Normalizer2::getNFKCInstance(error);
    nfd_ = icu::Normalizer2::getNFDInstance(error);
    check(U_SUCCESS(error) != 0, "ICU has its normalisation data");
  }

  /// `text` is valid UTF-8.
  [[nodiscard]] std::string operator()(std::string_view text) const {
    std::string out;
    if (std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; })) {
      std::ranges::transform(text, std::back_inserter(out), [](char byte) { return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte; });
      return out;
    }
    UErrorCode error = U_ZERO_ERROR;
    const icu::StringPiece bytes(text.data(), static_cast<std::int32_t>(text.size()));
    const icu::UnicodeString composed = nfkc_->normalize(icu::UnicodeString::fromUTF8(bytes), error);
    const icu::UnicodeString decomposed = nfd_->normalize(composed, error);
    check(U_SUCCESS(error) != 0, "normalisation of valid text succeeds");
    for (std::int32_t at = 0; at < decomposed.length(); at = decomposed.moveIndex32(at, 1)) {
      const UChar32 code_point = decomposed.char32At(at);
      if ((U_GET_GC_MASK(code_point) & U_GC_M_MASK) == 0) {
        // The one character whose full lowercase is not its simple one, U+0130, is decomposed by now.
        utf8::append(out, static_cast<std::uint32_t>(u_tolower(code_point)));
      }
    }
    return out;
  }

 private:
  const icu::Normalizer2* nfkc_ = nullptr;  // owned by ICU
  const icu::Normalizer2* nfd_ = nullptr;
};

/// Each run of blanks as one space.
std::string squeezed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string out;
  bool was_blank = false;
  for (const char byte : text) {
    const bool is_blank = kBlanks.contains(byte);
    if (!is_blank) {
      out.push_back(byte);
    } else if (!was_blank) {
      out.push_back(' ');
    }
    was_blank = is_blank;
  }
  return out;
}

bool is_space(std::string_view character) { return u_isUWhiteSpace(static_cast<UChar32>(utf8::decode(character))) != 0; }

/// Without the White_Space at both ends.
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text)) {
    text.remove_prefix(utf8::sequence_length(text));
  }
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) {
      --last;
    }
    if (!is_space(text.substr(last))) {
      break;
    }
    text.remove_suffix(text.size() - last);
  }
  return text;
}

/// The text that tokens of one class have in common.
std::string class_key(const Tokenizer& tokenizer, const Folder& fold, TokenId id) {
  const std::string_view text = tokenizer.bytes(id);
  if (!utf8::is_valid(text) || text.find(kReplacement) != std::string_view::npos) {
    return tokenizer.spelling(id);
  }
  std::string key = squeezed(fold(text));
  if (key != " ") {  // a token that is one space stays one
    key = std::string(trimmed(key));
  }
  return key.empty() ? std::string(text) : key;
}

}  // namespace

EngramVocabulary compress_vocabulary(const Tokenizer& tokenizer) {
  const Folder fold;
  EngramVocabulary out;
  out.class_of.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  std::unordered_map<std::string, std::int32_t> classes;
  classes.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto [place, is_new] = classes.try_emplace(class_key(tokenizer, fold, TokenId{id}), out.num_classes);
    out.num_classes += is_new ? 1 : 0;
    out.class_of.push_back(place->second);
  }
  return out;
}

}  // namespace deepinfer::tokenizer
