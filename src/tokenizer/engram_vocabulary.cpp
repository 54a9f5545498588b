#include "tokenizer/engram_vocabulary.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "base/utf8.h"

namespace deepinfer::tokenizer {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_blank(char16_t unit) { return unit == u' ' || unit == u'\t' || unit == u'\r' || unit == u'\n'; }

/// NFKC, then NFD, marks dropped, lowercase, runs of blanks to one space, ends trimmed; a lone space stays.
class Normaliser {
 public:
  Normaliser() {
    UErrorCode error = U_ZERO_ERROR;
    nfkc_ = icu::Normalizer2::getNFKCInstance(error);
    nfd_ = icu::Normalizer2::getNFDInstance(error);
    check(U_SUCCESS(error) != 0, "ICU has its normalisation data");
  }

  [[nodiscard]] std::string operator()(std::string_view text) const {
    UErrorCode error = U_ZERO_ERROR;
    const icu::UnicodeString composed =
        nfkc_->normalize(icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size()))), error);
    const icu::UnicodeString decomposed = nfd_->normalize(composed, error);
    check(U_SUCCESS(error) != 0, "normalisation of valid text succeeds");
    icu::UnicodeString folded = squeezed(lowercase_without_marks(decomposed));
    if (folded != icu::UnicodeString(u" ")) {
      trim(folded);
    }
    std::string out;
    folded.toUTF8String(out);
    return out;
  }

 private:
  /// Each character by its full mapping, by itself: the form of a final sigma must not depend on its neighbours.
  static icu::UnicodeString lowercase_without_marks(const icu::UnicodeString& text) {
    icu::UnicodeString out;
    for (std::int32_t at = 0; at < text.length(); at = text.moveIndex32(at, 1)) {
      const UChar32 code_point = text.char32At(at);
      if ((U_GET_GC_MASK(code_point) & U_GC_M_MASK) == 0) {
        out.append(code_point == u'\u0130' ? icu::UnicodeString(u"i\u0307") : icu::UnicodeString(u_tolower(code_point)));
      }
    }
    return out;
  }

  static icu::UnicodeString squeezed(const icu::UnicodeString& text) {
    icu::UnicodeString out;
    for (std::int32_t at = 0; at < text.length(); ++at) {
      if (!is_blank(text.charAt(at))) {
        out.append(text.charAt(at));
      } else if (at == 0 || !is_blank(text.charAt(at - 1))) {
        out.append(u' ');
      }
    }
    return out;
  }

  static void trim(icu::UnicodeString& text) {
    std::int32_t begin = 0;
    std::int32_t end = text.length();
    while (begin < end && u_isUWhiteSpace(text.charAt(begin)) != 0) {  // White_Space has no character beyond the BMP
      ++begin;
    }
    while (end > begin && u_isUWhiteSpace(text.charAt(end - 1)) != 0) {
      --end;
    }
    text.retainBetween(begin, end);
  }

  const icu::Normalizer2* nfkc_ = nullptr;  // owned by ICU
  const icu::Normalizer2* nfd_ = nullptr;
};

}  // namespace

EngramVocabulary compress_vocabulary(const Tokenizer& tokenizer) {
  const Normaliser normalise;
  EngramVocabulary out;
  out.class_of.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  std::unordered_map<std::string, std::int32_t> classes;
  classes.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.bytes(TokenId{id});
    std::string key;
    if (!utf8::is_valid(text) || text.find(kReplacement) != std::string_view::npos) {
      key = tokenizer.spelling(TokenId{id});
    } else {
      key = normalise(text);
      if (key.empty()) {
        key = text;
      }
    }
    const auto [place, is_new] = classes.try_emplace(std::move(key), out.num_classes);
    out.num_classes += is_new ? 1 : 0;
    out.class_of.push_back(place->second);
  }
  return out;
}

}  // namespace deepinfer::tokenizer
