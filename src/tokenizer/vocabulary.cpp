#include "tokenizer/vocabulary.h"

#include <optional>

#include "base/check.h"
#include "tokenizer/byte_alphabet.h"

namespace deepinfer::tokenizer {

Vocabulary::Vocabulary(const std::vector<std::string>& spellings, std::vector<bool> is_special)
    : is_special_(std::move(is_special)), is_verbatim_(spellings.size()) {
  check(is_special_.size() == spellings.size(), "every token has a special flag");
  offsets_.reserve(spellings.size() + 1);
  offsets_.push_back(0);
  for (std::size_t id = 0; id < spellings.size(); ++id) {
    // A spelling with a character outside the alphabet stands for itself (recipe.md section 1, decoding).
    const std::optional<std::string> bytes = bytes_of_spelling(spellings[id]);
    is_verbatim_[id] = !bytes.has_value();
    arena_ += bytes.has_value() ? *bytes : spellings[id];
    offsets_.push_back(static_cast<std::uint32_t>(arena_.size()));
  }
}

std::string Vocabulary::spelling(TokenId id) const {
  const std::string_view raw = bytes(id);
  return raw.empty() || is_verbatim_[static_cast<std::size_t>(id.value)] ? std::string(raw) : spelling_of_bytes(raw);
}

}  // namespace deepinfer::tokenizer
