// The stages of a reply and the literals that end them (spec/recipe.md section 3.1), with the matching of one literal.
// Not the text between the literals: that is reply_parser.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/parsing_options.h"
#include "recipe/special_tokens.h"

namespace deepinfer::recipe {

enum class Stage : std::uint8_t { reasoning, content, json, after_json, calls, name, arguments, key, value_type, value, finished };
inline constexpr std::size_t kNumStages = 11;

/// What a completed literal does besides the change of stage.
enum class Effect : std::uint8_t {
  nothing,
  lead_newline,     ///< stays in the stage, which begins anew
  open_content,     ///< the next stage drops its leading newlines
  json_bracket,     ///< the literal itself is content
  stop,             ///< a stop sequence: the reply is finished
  start_call,       ///< the name is complete
  start_parameter,  ///< `{` or `, `
  end_key,          ///< `: `
  end_key_open,     ///< end_key and open_string at once: a parameter that does not say its type
  open_string,      ///< `"`, the value is escaped
  open_raw,         ///< the value is copied
  close_value,      ///< `"` if the value is a string
  close_call,       ///< `}`, or `{}` without parameters
};

/// Where the bytes of a segment come from. A literal that spells a control token is found in ordinary text and where the control id
/// stands, never in what other ids spell.
enum class SegmentKind : std::uint8_t { text, token_text, control_token };

/// What may stand directly before a literal.
enum class Prefix : std::uint8_t {
  none,
  newlines,        ///< newlines before the literal belong to it
  start_of_stage,  ///< only the very first byte of the stage
};

/// One text that ends a stage, with its progress table.
class Literal {
 public:
  /// Plain text, not empty.
  explicit Literal(std::string bytes, Prefix prefix = Prefix::none);
  /// `before`, the control token spelled `marker` (not empty), `after`.
  Literal(std::string_view before, std::string_view marker, std::string_view after, Prefix prefix = Prefix::none);

  [[nodiscard]] std::string_view bytes() const { return bytes_; }
  [[nodiscard]] Prefix prefix() const { return prefix_; }

 private:
  friend class Match;

  std::string bytes_;
  std::vector<std::uint32_t> fall_back_;  // [bytes] longest proper border of the first i+1 bytes
  std::size_t marker_begin_ = 0;
  std::size_t marker_end_ = 0;  // equal to marker_begin_: no marker
  Prefix prefix_;
};

/// How much of one literal has been seen at the end of the bytes so far (Knuth, Morris, Pratt).
/// Newlines count for the literal only while nothing of it has been seen: one that breaks off a beginning is plain text.
class Match {
 public:
  /// Takes one byte; true when it completes the literal.
  [[nodiscard]] bool advance(const Literal& literal, char byte, SegmentKind kind) {
    if (matched_ == 0) {
      if (byte == '\n' && literal.prefix_ == Prefix::newlines) {
        ++newlines_;
        return false;
      }
      if (literal.bytes_[0] != byte) {
        newlines_ = 0;
        return false;
      }
    }
    return advance_begun(literal, byte, kind);
  }
  /// Takes a control token spelled `text` as one symbol; true when it completes the literal.
  [[nodiscard]] bool advance_control(const Literal& literal, std::string_view text);

  /// Bytes at the end of the input that belong to the literal if it goes on, the newlines before it included.
  [[nodiscard]] std::size_t length() const { return matched_ + newlines_; }

 private:
  [[nodiscard]] bool advance_begun(const Literal& literal, char byte, SegmentKind kind);
  void fall_back(const Literal& literal);

  std::size_t matched_ = 0;
  std::size_t newlines_ = 0;  // directly before the matched bytes
};

struct Rule {
  Literal literal;
  Effect effect = Effect::nothing;
  Stage next = Stage::finished;
};

/// The rules of one stage in the order in which they win ties, and the bytes any of them can begin with.
struct StageRules {
  std::vector<Rule> rules;
  std::array<bool, 256> starts{};
};

/// The rules of every stage, by Stage. Improved: a calls block opens only with a whole tag, keys end with their quote.
[[nodiscard]] std::array<StageRules, kNumStages> make_stage_rules(const ParsingOptions& options, const SpecialTokens& tokens);

}  // namespace deepinfer::recipe
