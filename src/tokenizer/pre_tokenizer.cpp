#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/word_bytes.h"

namespace deepinfer::tokenizer {

namespace {

using C = CharClass;

constexpr std::uint8_t kWord = C::kLetter | C::kMark;

/// Reads a text in which every character outside a scope counts as the end: the borders of the earlier steps.
class Cursor {
 public:
  Cursor(const CharClasses& classes, std::string_view text) : classes_(classes), text_(text) {}

  /// End of the run of characters from `at` that have any of `bits`.
  template <class Scope>
  [[nodiscard]] std::size_t run_end(std::size_t at, std::uint8_t bits) const {
    for (;;) {
      const ClassifiedChar next = read<Scope>(at);
      if ((next.bits & bits) == 0) {
        return at;
      }
      at += next.length_bytes;
    }
  }

  /// The character at `at`; outside the scope the same as at the end of the text.
  template <class Scope>
  [[nodiscard]] ClassifiedChar read(std::size_t at) const {
    const ClassifiedChar next = classes_.read(text_, at);
    return Scope::contains(next.bits) ? next : ClassifiedChar{};
  }

  [[nodiscard]] unsigned char byte(std::size_t at) const {
    return at < text_.size() ? static_cast<unsigned char>(text_[at]) : static_cast<unsigned char>(0);
  }

 private:
  const CharClasses& classes_;
  std::string_view text_;
};

struct Everything {
  static bool contains(std::uint8_t) { return true; }
};
/// A run of step 2.
struct InsideCjk {
  static bool contains(std::uint8_t bits) { return (bits & C::kCjk) != 0; }
};
/// What steps 1 and 2 leave over.
struct OutsideCjkAndNumbers {
  static bool contains(std::uint8_t bits) { return (bits & (C::kCjk | C::kNumber)) == 0; }
};

constexpr bool is_ascii_letter(unsigned char byte) { return static_cast<unsigned char>((byte | 0x20) - 'a') < 26; }

/// A run of spaces that was read to its end.
struct SpaceRun {
  std::size_t end;
  std::size_t last;           // start of its last character
  std::size_t after_newline;  // end of its last newline; 0: it has none
  bool is_followed;           // by something in the scope
};

template <class Scope>
SpaceRun read_spaces(const Cursor& cursor, std::size_t begin) {
  SpaceRun run{.end = begin, .last = begin, .after_newline = 0, .is_followed = false};
  for (;;) {
    const ClassifiedChar next = cursor.read<Scope>(run.end);
    if ((next.bits & C::kSpace) == 0) {
      run.is_followed = next.length_bytes != 0;
      return run;
    }
    run.last = run.end;
    run.end += next.length_bytes;
    if ((next.bits & C::kNewline) != 0) {
      run.after_newline = run.end;
    }
  }
}

/// `\s+(?!\S)|\s+`: all but the last character when something follows, else all.
std::size_t leave_one_before_text(const SpaceRun& run, std::size_t begin) {
  return run.is_followed && run.last > begin ? run.last : run.end;
}

/// Step 3 of the DeepSeek patterns inside one piece of the earlier steps: a match, or the gap up to the next match.
template <class Scope>
std::size_t deepseek_end(const Cursor& cursor, std::size_t begin) {
  const ClassifiedChar first = cursor.read<Scope>(begin);
  const std::size_t second_at = begin + first.length_bytes;
  if ((first.bits & kWord) != 0) {
    return cursor.run_end<Scope>(second_at, kWord);
  }
  if ((first.bits & C::kSymbol) != 0) {
    if (first.length_bytes == 1 && is_ascii_letter(cursor.byte(second_at))) {
      std::size_t at = second_at + 1;
      while (is_ascii_letter(cursor.byte(at))) {
        ++at;
      }
      return at;
    }
    return cursor.run_end<Scope>(cursor.run_end<Scope>(second_at, C::kSymbol), C::kNewline);
  }
  const ClassifiedChar second = cursor.read<Scope>(second_at);
  if ((first.bits & C::kNewline) == 0 && (second.bits & kWord) != 0) {
    return cursor.run_end<Scope>(second_at + second.length_bytes, kWord);
  }
  if (cursor.byte(begin) == ' ' && (second.bits & C::kSymbol) != 0) {
    return cursor.run_end<Scope>(cursor.run_end<Scope>(second_at, C::kSymbol), C::kNewline);
  }
  if ((first.bits & C::kSpace) != 0) {
    const SpaceRun run = read_spaces<Scope>(cursor, begin);
    return run.after_newline != 0 ? run.after_newline : leave_one_before_text(run, begin);  // `\s*[\r\n]+` comes first
  }
  // No alternative starts here: the unmatched characters up to the next match are one piece.
  std::size_t at = second_at;
  ClassifiedChar next = second;
  while ((next.bits & C::kOther) != 0) {
    const ClassifiedChar after = cursor.read<Scope>(at + next.length_bytes);
    if ((after.bits & kWord) != 0) {
      break;
    }
    at += next.length_bytes;
    next = after;
  }
  return at;
}

/// End of the run of ASCII letters from `at`.
std::size_t ascii_letters_end(std::string_view text, std::size_t at) {
  for (; at + sizeof(std::uint64_t) <= text.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t others = word_bytes::flag_non_letters(word_bytes::load(text.data() + at));
    if (others != 0) {
      return at + word_bytes::first_flag(others);
    }
  }
  while (at < text.size() && is_ascii_letter(static_cast<unsigned char>(text[at]))) {
    ++at;
  }
  return at;
}

std::size_t deepseek_piece_end(const Cursor& cursor, std::size_t begin) {
  constexpr int kMaxDigits = 3;
  const ClassifiedChar first = cursor.read<Everything>(begin);
  if ((first.bits & C::kNumber) != 0) {
    std::size_t at = begin + first.length_bytes;
    for (int digits = 1; digits < kMaxDigits; ++digits) {
      const ClassifiedChar next = cursor.read<Everything>(at);
      if ((next.bits & C::kNumber) == 0) {
        break;
      }
      at += next.length_bytes;
    }
    return at;
  }
  return (first.bits & C::kCjk) != 0 ? deepseek_end<InsideCjk>(cursor, begin) : deepseek_end<OutsideCjkAndNumbers>(cursor, begin);
}

/// Length of `'s|'t|'re|'ve|'m|'ll|'d` after the apostrophe; 0 when none is there.
std::size_t contraction_bytes(const Cursor& cursor, std::size_t at) {
  const unsigned char first = cursor.byte(at);
  const unsigned char second = cursor.byte(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return 1;
  }
  const bool is_pair = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return is_pair ? 2 : 0;
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: some alternative matches every character.
std::size_t gpt2_piece_end(const Cursor& cursor, std::size_t begin) {
  constexpr std::uint8_t kSign = C::kMark | C::kSymbol | C::kOther;
  if (cursor.byte(begin) == '\'') {
    const std::size_t length = contraction_bytes(cursor, begin + 1);
    if (length != 0) {
      return begin + 1 + length;
    }
  }
  const std::size_t body = begin + (cursor.byte(begin) == ' ' ? 1 : 0);
  const ClassifiedChar first = cursor.read<Everything>(body);
  for (const std::uint8_t bits : {C::kLetter, C::kNumber, kSign}) {
    if ((first.bits & bits) != 0) {
      return cursor.run_end<Everything>(body + first.length_bytes, bits);
    }
  }
  return leave_one_before_text(read_spaces<Everything>(cursor, begin), begin);
}

}  // namespace

std::size_t PreTokenizer::piece_end(std::string_view text, std::size_t begin) const {
  // The piece of most texts in both patterns: a word of ASCII letters, maybe with a space in front.
  const std::size_t letters = begin + (text[begin] == ' ' ? 1 : 0);
  const std::size_t end = ascii_letters_end(text, letters);
  if (end > letters && (end == text.size() || static_cast<unsigned char>(text[end]) < 0x80)) {
    return end;
  }
  const Cursor cursor(*classes_, text);
  return pattern_ == Pattern::deepseek ? deepseek_piece_end(cursor, begin) : gpt2_piece_end(cursor, begin);
}

std::size_t PreTokenizer::certain_border(std::string_view text, std::size_t from) const {
  std::size_t at = from;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    ++at;  // a character starts at the first byte that continues none
  }
  ClassifiedChar previous = classes_->read(text, at);
  for (at += previous.length_bytes; at < text.size(); at += previous.length_bytes) {
    const ClassifiedChar next = classes_->read(text, at);
    const bool is_word_end = (previous.bits & C::kLetter) != 0 && (next.bits & C::kSpace) != 0;
    const bool is_line_end = (previous.bits & C::kNewline) != 0 && (next.bits & C::kSpace) == 0;
    const bool is_clause_end = (previous.bits & C::kSymbol) != 0 && previous.length_bytes > 1 && (next.bits & C::kLetter) != 0;
    if (is_word_end || is_line_end || is_clause_end) {
      return at;
    }
    previous = next;
  }
  return text.size();
}

}  // namespace deepinfer::tokenizer
