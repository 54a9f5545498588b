#include "random_grammars.h"

#include <array>
#include <vector>

namespace deepinfer::grammar::testing {

namespace {

using Ranges = std::vector<std::pair<char32_t, char32_t>>;

/// A piece of the text beside the rule of the same language.
struct Piece {
  std::string text;
  int rule = 0;
};

class Maker {
 public:
  Maker(std::mt19937& random, SlowGrammar& slow) : random_(random), slow_(slow) {}

 protected:
  [[nodiscard]] int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  template <std::size_t N>
  const auto& pick(const std::array<Piece, N>& all) {
    return all[static_cast<std::size_t>(below(static_cast<int>(N)))];
  }
  Piece quantified(const Piece& piece) {
    switch (below(6)) {
      case 0:
        return {piece.text + "*", slow_.repeat(piece.rule, 0, -1)};
      case 1:
        return {piece.text + "+", slow_.repeat(piece.rule, 1, -1)};
      case 2:
        return {piece.text + "?", slow_.repeat(piece.rule, 0, 1)};
      case 3: {
        const int least = below(3);
        const int most = least + 1 + below(3);
        return {piece.text + "{" + std::to_string(least) + "," + std::to_string(most) + "}", slow_.repeat(piece.rule, least, most)};
      }
      default:
        return piece;
    }
  }

  std::mt19937& random_;
  SlowGrammar& slow_;
};

class RegexMaker : public Maker {
 public:
  using Maker::Maker;

  Piece make(int depth) {
    const int choice = depth == 0 ? 0 : below(5);
    if (choice <= 1) {
      return quantified(atom());
    }
    Piece first = make(depth - 1);
    Piece second = make(depth - 1);
    if (choice == 2) {
      return quantified({"(?:" + first.text + "|" + second.text + ")", slow_.choice({first.rule, second.rule})});
    }
    if (choice == 3) {
      return quantified({"(" + first.text + second.text + ")", slow_.sequence({first.rule, second.rule})});
    }
    return {first.text + second.text, slow_.sequence({first.rule, second.rule})};
  }

 private:
  Piece atom() {
    switch (below(9)) {
      case 0:
        return {"a", slow_.literal("a")};
      case 1:
        return {"b", slow_.literal("b")};
      case 2:
        return {"\\.", slow_.literal(".")};
      case 3:
        return {"[a-c1]", slow_.one_of({{U'a', U'c'}, {U'1', U'1'}})};
      case 4:
        return {"[^a-y]", slow_.one_of({{0, U'`'}, {U'z', 0x10FFFF}})};
      case 5:
        return {".", slow_.one_of({{0, 9}, {11, 0x10FFFF}})};
      case 6:
        return {"\\d", slow_.one_of({{U'0', U'9'}})};
      case 7:
        return {"[\\w-]", slow_.one_of({{U'a', U'z'}, {U'A', U'Z'}, {U'0', U'9'}, {U'_', U'_'}, {U'-', U'-'}})};
      default:
        return {"[中-国é]", slow_.one_of({{0x4E2D, 0x56FD}, {0xE9, 0xE9}})};
    }
  }
};

class EbnfMaker : public Maker {
 public:
  using Maker::Maker;

  std::string make(int& root) {
    constexpr int kNumRules = 4;
    for (int i = 0; i < kNumRules; ++i) {
      rules_.push_back(slow_.add_rule());
    }
    std::string text;
    for (int i = 0; i < kNumRules; ++i) {
      text += (i == 0 ? "root" : "r" + std::to_string(i)) + " ::= ";
      const int num_alternatives = 1 + below(3);
      for (int k = 0; k < num_alternatives; ++k) {
        Piece all = alternative();
        text += (k == 0 ? "" : " | ") + all.text;
        slow_.add(rules_[static_cast<std::size_t>(i)], {{.rule = all.rule}});
      }
      text += "\n";
    }
    root = rules_[0];
    return text;
  }

 private:
  Piece alternative() {
    std::string text;
    std::vector<int> parts;
    for (int count = below(4); count > 0; --count) {
      const Piece piece = quantified(item());
      text += piece.text + " ";
      parts.push_back(piece.rule);
    }
    return {parts.empty() ? "\"\"" : text, slow_.sequence(parts)};
  }
  Piece item() {
    switch (below(6)) {
      case 0:
        return {"\"ab\"", slow_.literal("ab")};
      case 1:
        return {"\"(\"", slow_.literal("(")};
      case 2:
        return {"[a-c]", slow_.one_of({{U'a', U'c'}})};
      case 3:
        return {"[^\\n]", slow_.one_of({{0, 9}, {11, 0x10FFFF}})};
      default: {
        const int other = below(static_cast<int>(rules_.size()));
        return {other == 0 ? "root" : "r" + std::to_string(other), rules_[static_cast<std::size_t>(other)]};
      }
    }
  }

  std::vector<int> rules_;
};

class SchemaMaker : public Maker {
 public:
  SchemaMaker(std::mt19937& random, SlowGrammar& slow) : Maker(random, slow), root_(slow.add_rule()) { make_characters(); }

  std::string make(int& root) {
    const Piece piece = value(3);
    slow_.add(root_, {{.rule = piece.rule}});
    root = root_;
    return piece.text;
  }

 private:
  void make_characters() {
    const int hex = slow_.one_of({{U'0', U'9'}, {U'a', U'f'}, {U'A', U'F'}});
    const int escape = slow_.literal("\\u");
    const int raw = slow_.one_of({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}});
    Ranges letters;
    for (const char c : std::string_view("\"\\/bfnrt")) {
      letters.emplace_back(c, c);
    }
    const int letter = slow_.sequence({slow_.literal("\\"), slow_.one_of(letters)});
    const int first = slow_.one_of({{U'0', U'9'}, {U'a', U'c'}, {U'A', U'C'}, {U'e', U'f'}, {U'E', U'F'}});
    const int d = slow_.one_of({{U'd', U'd'}, {U'D', U'D'}});
    const int plain =
        slow_.choice({slow_.sequence({escape, first, hex, hex, hex}), slow_.sequence({escape, d, slow_.one_of({{U'0', U'7'}}), hex, hex})});
    const int high = slow_.one_of({{U'8', U'9'}, {U'a', U'b'}, {U'A', U'B'}});
    const int low = slow_.one_of({{U'c', U'f'}, {U'C', U'F'}});
    const int pair = slow_.sequence({escape, d, high, hex, hex, escape, d, low, hex, hex});
    character_ = slow_.choice({raw, letter, plain, pair});
  }

  int integer() {
    const int digits = slow_.repeat(slow_.one_of({{U'0', U'9'}}), 0, -1);
    const int positive = slow_.sequence({slow_.one_of({{U'1', U'9'}}), digits});
    return slow_.sequence({slow_.repeat(slow_.literal("-"), 0, 1), slow_.choice({slow_.literal("0"), positive})});
  }

  int number() {
    const int digits = slow_.repeat(slow_.one_of({{U'0', U'9'}}), 1, -1);
    const int fraction = slow_.sequence({slow_.literal("."), digits});
    const int sign = slow_.repeat(slow_.one_of({{U'+', U'+'}, {U'-', U'-'}}), 0, 1);
    const int exponent = slow_.sequence({slow_.one_of({{U'e', U'e'}, {U'E', U'E'}}), sign, digits});
    return slow_.sequence({integer(), slow_.repeat(fraction, 0, 1), slow_.repeat(exponent, 0, 1)});
  }

  /// `in_union`: strings there are one language with their neighbours' and may be spelled with escapes.
  Piece value(int depth, bool in_union = false) {
    switch (below(depth == 0 ? 6 : 10)) {
      case 0:
        return {R"({"type":["null","boolean"]})", slow_.choice({slow_.literal("null"), slow_.literal("true"), slow_.literal("false")})};
      case 1:
        if (in_union) {
          return {R"({"enum":[[null],[true,null]]})", slow_.choice({slow_.literal("[null]"), slow_.literal("[true,null]")})};
        }
        return {R"({"enum":["a.txt","ab",null,[true]]})",
                slow_.choice({slow_.literal(R"("a.txt")"), slow_.literal(R"("ab")"), slow_.literal("null"), slow_.literal("[true]")})};
      case 2:
        return {R"({"type":"integer"})", integer()};
      case 3:
        return {R"({"type":"number"})", number()};
      case 4:
      case 5: {
        const int least = below(2);
        const int most = least + below(4);
        const int quote = slow_.literal("\"");
        return {R"({"type":"string","minLength":)" + std::to_string(least) + R"(,"maxLength":)" + std::to_string(most) + "}",
                slow_.sequence({quote, slow_.repeat(character_, least, most), quote})};
      }
      case 6: {
        const Piece first = value(depth - 1, true);
        const Piece second = value(depth - 1, true);
        return {R"({"anyOf":[)" + first.text + "," + second.text + "]}", slow_.choice({first.rule, second.rule})};
      }
      case 7:
        return array({R"({"$ref":"#"})", root_}, 0, below(3));
      case 8: {
        const int least = below(3);
        return array(value(depth - 1), least, below(2) == 0 ? -1 : least + below(3));
      }
      default:
        return object(depth);
    }
  }

  /// `most` < 0: without bound.
  Piece array(const Piece& item, int least, int most) {
    const int open = slow_.literal("[");
    const int close = slow_.literal("]");
    const int more = slow_.sequence({slow_.literal(","), item.rule});
    std::vector<int> options;
    if (least == 0) {
      options.push_back(slow_.sequence({open, close}));
    }
    if (most != 0) {
      const int rest = slow_.repeat(more, least == 0 ? 0 : least - 1, most < 0 ? -1 : most - 1);
      options.push_back(slow_.sequence({open, item.rule, rest, close}));
    }
    return {R"({"type":"array","items":)" + item.text + R"(,"minItems":)" + std::to_string(least) +
                (most < 0 ? "" : R"(,"maxItems":)" + std::to_string(most)) + "}",
            slow_.choice(options)};
  }

  Piece object(int depth) {
    constexpr std::array<std::string_view, 3> kNames = {"a", "abc", "b-c"};
    const auto num_names = static_cast<unsigned>(1 + below(3));
    const auto required = static_cast<unsigned>(below(8)) & ((1U << num_names) - 1);
    std::string properties;
    std::string required_names;
    std::vector<int> members;
    for (unsigned i = 0; i < num_names; ++i) {
      const Piece member = value(depth - 1);
      const std::string name = "\"" + std::string(kNames[i]) + "\"";
      properties += (i == 0 ? "" : ",") + name + ":" + member.text;
      required_names += (required >> i & 1) == 0 ? "" : (required_names.empty() ? "" : ",") + name;
      members.push_back(slow_.sequence({slow_.literal(name + ":"), member.rule}));
    }
    const int comma = slow_.literal(",");
    std::vector<int> options;
    for (unsigned present = 0; present < 1U << num_names; ++present) {
      if ((present & required) != required) {
        continue;
      }
      std::vector<int> parts{slow_.literal("{")};
      for (unsigned i = 0; i < num_names; ++i) {
        if ((present >> i & 1) != 0) {
          if (parts.size() > 1) {
            parts.push_back(comma);
          }
          parts.push_back(members[i]);
        }
      }
      parts.push_back(slow_.literal("}"));
      options.push_back(slow_.sequence(parts));
    }
    return {R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + required_names + R"(],"additionalProperties":false})",
            slow_.choice(options)};
  }

  int root_;
  int character_ = 0;
};

}  // namespace

RandomGrammar random_regex(std::mt19937& random) {
  RandomGrammar out{.kind = GrammarKind::regex};
  const Piece piece = RegexMaker(random, out.slow).make(3);
  out.text = piece.text;
  out.root = piece.rule;
  return out;
}

RandomGrammar random_ebnf(std::mt19937& random) {
  RandomGrammar out{.kind = GrammarKind::ebnf};
  out.text = EbnfMaker(random, out.slow).make(out.root);
  return out;
}

RandomGrammar random_schema(std::mt19937& random) {
  RandomGrammar out{.kind = GrammarKind::json_schema, .options = {.max_blanks = 0}};
  out.text = SchemaMaker(random, out.slow).make(out.root);
  return out;
}

}  // namespace deepinfer::grammar::testing
