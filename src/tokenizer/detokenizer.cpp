#include "tokenizer/detokenizer.h"

#include <algorithm>
#include <string_view>

#include "base/utf8.h"

namespace deepinfer::tokenizer {

namespace {

constexpr std::size_t kMaxSequenceBytes = 4;

/// Length of the well-formed sequences that start with `lead`; 0 when none do (Unicode table 3-7).
constexpr std::size_t length_after(unsigned char lead) {
  if (lead < 0x80) {
    return 1;
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return 0;
  }
  return lead < 0xE0 ? 2 : (lead < 0xF0 ? 3 : 4);
}

/// Bytes at the end of `text` that more bytes could complete to a character: 0 … 3.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t length = 1; length < kMaxSequenceBytes && length <= text.size(); ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    const auto lead = static_cast<unsigned char>(tail[0]);
    if ((lead & 0xC0) == 0x80) {
      continue;
    }
    if (length_after(lead) <= length) {
      return 0;
    }
    // The second byte has bounds of its own, the later ones do not: the prefix is good when it can be filled up.
    std::string filled(tail);
    filled.append(length_after(lead) - length, '\x80');
    return length == 1 || utf8::is_valid(filled) ? length : 0;
  }
  return 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, SpecialTokens mode) : tokenizer_(tokenizer), mode_(mode) {}

void Detokenizer::append(TokenId id, std::string& out) {
  if (mode_ == SpecialTokens::skip && tokenizer_.is_special(id)) {
    return;
  }
  const std::string_view bytes = tokenizer_.bytes(id);
  if (pending_.empty() && tokenizer_.is_text(id)) {
    out.append(bytes);
    return;
  }
  append_bytes(bytes, out);
}

void Detokenizer::append_bytes(std::string_view bytes, std::string& out) {
  pending_.append(bytes);
  const std::size_t ready = pending_.size() - unfinished_bytes(pending_);
  out.append(utf8::replace_invalid(std::string_view(pending_).substr(0, ready)));
  pending_.erase(0, ready);
}

void Detokenizer::finish(std::string& out) {
  out.append(utf8::replace_invalid(pending_));
  pending_.clear();
}

}  // namespace deepinfer::tokenizer
