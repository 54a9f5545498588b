#include "tokenizer/vocabulary.h"

#include <optional>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace deepinfer::tokenizer {

Vocabulary::Vocabulary(const std::vector<std::string>& spellings, const std::vector<bool>& is_special) {
  check(is_special.size() == spellings.size(), "every token has a special flag");
  flags_.reserve(spellings.size());
  offsets_.reserve(spellings.size() + 1);
  offsets_.push_back(0);
  for (std::size_t id = 0; id < spellings.size(); ++id) {
    // A spelling with a character outside the alphabet stands for itself (recipe.md section 1, decoding).
    const std::optional<std::string> decoded = bytes_of_spelling(spellings[id]);
    const std::string& bytes = decoded ? *decoded : spellings[id];
    const int flags = (is_special[id] ? kSpecial : 0) | (decoded ? 0 : kVerbatim) | (utf8::is_valid(bytes) ? 0 : kFragment);
    flags_.push_back(static_cast<std::uint8_t>(flags));
    arena_ += bytes;
    offsets_.push_back(static_cast<std::uint32_t>(arena_.size()));
  }
}

std::string Vocabulary::spelling(TokenId id) const {
  const std::string_view raw = bytes(id);
  return raw.empty() || has_flag(id, kVerbatim) ? std::string(raw) : spelling_of_bytes(raw);
}

}  // namespace deepinfer::tokenizer
