// A matcher under any order of accepting, going back and asking for masks: a token is taken exactly when the mask that stood there has
// it, masks are what they were when a place is seen again, and a new matcher that reads the same tokens has the same mask.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::grammar;

using Mask = std::vector<std::uint32_t>;

struct Source {
  GrammarKind kind;
  std::string_view text;
};

constexpr std::array kSources = {
    Source{GrammarKind::regex, "(a|b)*a(a|b){3}"},
    Source{GrammarKind::regex, "(?!ab)[a-z ]{1,40}\\.(txt|t)"},
    Source{GrammarKind::regex, "[^\"]*\"}|-{0,50}(b-c)?"},
    Source{GrammarKind::regex, "(\\p{L}+ ){0,9}[中文]?"},
    Source{GrammarKind::ebnf, "root ::= \"(\" root \")\" root | \"\""},
    Source{GrammarKind::ebnf, "root ::= e\ne ::= e \"+\" e | [a-c]{1,3} | \"(\" e \")\""},
    Source{GrammarKind::ebnf, "root ::= [^]{0,3} Token(0) root | \"x\""},
    Source{GrammarKind::json_object, ""},
    Source{GrammarKind::json_schema, R"({"type":"string","pattern":"^[-a]+b?-c?$","maxLength":40})"},
    Source{GrammarKind::json_schema, R"({"properties":{"a":{"type":"integer","minimum":-3},"ab":{"format":"date"}},"required":["ab"]})"},
    Source{GrammarKind::json_schema, R"({"type":"array","items":{"anyOf":[{"$ref":"#"},{"enum":["a","ab",1.5]}]},"maxItems":3})"},
    Source{GrammarKind::json_schema,
           R"({"type":"object","patternProperties":{"a":{"type":"null"}},"additionalProperties":{"maxLength":3}})"},
};

/// Id 0 ends the text and is a control token; then all bytes, then longer tokens.
std::shared_ptr<const Vocabulary> words() {
  std::vector<VocabularyToken> tokens{{"<end>", true}};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back({std::string(1, static_cast<char>(byte)), false});
  }
  for (const char* word :
       {"ab", "aab", "{\"", "\":", "\",\"", "\"}", "\": ", "中文", "\xE4\xB8", "((", "))", ")+", "10", "null", "\\u00", "--", ".txt"}) {
    tokens.push_back({word, false});
  }
  tokens.push_back({std::string(36, '-') + "b-c", false});
  tokens.push_back({std::string(34, '-') + "\",", false});
  const auto size = static_cast<std::int32_t>(tokens.size());
  return std::make_shared<const Vocabulary>(std::move(tokens), size);
}

bool has(const Mask& mask, std::int32_t id) { return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0; }

class Walk {
 public:
  Walk(std::shared_ptr<const CompiledGrammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
      : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), matcher_(make()), masks_{mask_of(matcher_)} {}

  /// Takes the allowed token that comes next behind `start`, if any.
  void take(std::uint8_t start) {
    const std::int32_t rows = vocabulary_->num_rows();
    for (std::int32_t i = 0; i < rows; ++i) {
      const std::int32_t id = (start * 2 + i) % rows;
      if (has(masks_.back(), id)) {
        check(matcher_.accept(TokenId{id}) || matcher_.is_exhausted(), "a token of the mask is taken");
        ids_.push_back(TokenId{id});
        masks_.push_back(mask_of(matcher_));
        return;
      }
    }
    check(matcher_.is_exhausted(), "a mask is never empty");
  }
  void refuse(std::uint8_t id) {
    if (!has(masks_.back(), id)) {
      check(!matcher_.accept(TokenId{id}), "a token outside the mask is refused");
      check(mask_of(matcher_) == masks_.back(), "a refused token changes nothing");
    }
  }
  void go_back(std::uint8_t count) {
    const std::size_t back = count % (ids_.size() + 1);
    matcher_.rollback(back);
    ids_.resize(ids_.size() - back);
    masks_.resize(masks_.size() - back);
    check(mask_of(matcher_) == masks_.back(), "a place seen again has its mask");
  }
  void replay() {
    Matcher other = make();
    for (const TokenId id : ids_) {
      check(other.accept(id), "a token taken once is taken again");
    }
    check(mask_of(other) == masks_.back() && other.can_end() == matcher_.can_end(), "a new matcher comes to the same place");
  }
  [[nodiscard]] bool is_exhausted() const { return matcher_.is_exhausted(); }

 private:
  Matcher make() { return {grammar_, vocabulary_, {.end_ids = {TokenId{0}}, .trigger_ids = {}, .bound_id = {}}}; }
  Mask mask_of(Matcher& matcher) const {
    Mask out(vocabulary_->mask_words());
    matcher.fill_mask(out);
    return out;
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  Matcher matcher_;
  std::vector<TokenId> ids_;
  std::vector<Mask> masks_;  // before each id and behind the last
};

std::shared_ptr<const CompiledGrammar> grammar_of(std::size_t index) {
  static std::array<std::shared_ptr<const CompiledGrammar>, kSources.size()> known;
  if (known[index] == nullptr) {
    const auto compiled = compile({.kind = kSources[index].kind, .text = kSources[index].text, .options = {.max_blanks = 2}, .limits = {}});
    check(compiled.has_value(), "the grammars compile");
    known[index] = *compiled;
  }
  return known[index];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<const Vocabulary> kVocabulary = words();
  if (size == 0) {
    return 0;
  }
  Walk walk(grammar_of(data[0] % kSources.size()), kVocabulary);
  for (std::size_t i = 1; i + 1 < size && i < 400 && !walk.is_exhausted(); i += 2) {
    switch (data[i] % 8) {
      case 0:
        walk.go_back(data[i + 1]);
        break;
      case 1:
        walk.refuse(data[i + 1]);
        break;
      case 2:
        walk.replay();
        break;
      default:
        walk.take(data[i + 1]);
    }
  }
  return 0;
}
