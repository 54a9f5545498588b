#include <gtest/gtest.h>

#include <random>

#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;

std::shared_ptr<const CompiledGrammar> schema(std::string_view text, CompileOptions options = {}) {
  auto out = try_compile(GrammarKind::json_schema, text, std::move(options));
  EXPECT_TRUE(out.has_value()) << text << ": " << (out ? "" : out.error().message);
  return out.value_or(nullptr);
}

CompileError schema_error(std::string_view text) {
  auto out = try_compile(GrammarKind::json_schema, text);
  EXPECT_FALSE(out.has_value()) << text;
  return out ? CompileError{} : out.error();
}

TEST(JsonSchema, RequiredNamesAreEnforcedWithAndWithoutProperties) {
  const auto grammar = schema(R"({"type":"object","required":["y"]})");
  EXPECT_FALSE(matches(grammar, "{}"));
  EXPECT_TRUE(matches(grammar, R"({"y":1})"));
}

TEST(JsonSchema, AnOptionalNameCannotBeWrittenWithAnotherSpelling) {
  const auto grammar = schema(R"({"type":"object","properties":{"a":{"type":"integer"}}})");
  for (const char* text : {R"({"a": "wrong"})", R"({"b":"bar","a":"BAD"})", R"({"\u0061":"BAD"})", R"({"a":1,"a":2})"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  EXPECT_TRUE(matches(grammar, R"({"a": 1, "b": "x"})"));
  EXPECT_TRUE(matches(grammar, R"({"aa": "x", "\u0061b": 2})"));
}

TEST(JsonSchema, LengthsCountCodePointsOfTheDecodedString) {
  const auto grammar = schema(R"({"type":"string","minLength":2,"maxLength":2})");
  EXPECT_TRUE(matches(grammar, R"("中\n")"));
  EXPECT_TRUE(matches(grammar, R"("\ud83d\ude00x")"));
  EXPECT_FALSE(matches(grammar, R"("\ud83dx")"));
  EXPECT_FALSE(matches(grammar, R"("abc")"));
}

TEST(JsonSchema, BoundsAreExactDecimals) {
  const auto grammar = schema(R"({"type":"number","minimum":-0.5,"exclusiveMaximum":12.25})");
  for (const char* text : {"-0.5", "-0.50", "-0", "0", "12", "12.2499", "3.999"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text : {"-0.51", "12.25", "12.250", "13", "-1", "012"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  EXPECT_EQ(schema_error(R"({"type":"integer","minimum":3,"maximum":2})").code, ErrorCode::unsatisfiable);
}

TEST(JsonSchema, RandomBoundsAgreeWithArithmetic) {
  std::mt19937 random(17);
  for (int run = 0; run < 60; ++run) {
    const int low = static_cast<int>(random() % 4000) - 2000;
    const int high = low + static_cast<int>(random() % 500);
    const int step = 1 + static_cast<int>(random() % 40);
    const auto grammar = try_compile(GrammarKind::json_schema, R"({"type":"integer","minimum":)" + std::to_string(low) + R"(,"maximum":)" +
                                                                   std::to_string(high) + R"(,"multipleOf":)" + std::to_string(step) + "}");
    for (int value = low - 30; value <= high + 30; ++value) {
      const bool fits = value >= low && value <= high && value % step == 0;
      ASSERT_EQ(grammar.has_value() && matches(*grammar, std::to_string(value)), fits)
          << value << " in " << low << ".." << high << " step " << step;
    }
  }
}

TEST(JsonSchema, MultiplesOfALargeNumberAreNotSearchedFor) {
  const auto grammar = schema(R"({"type":"integer","multipleOf":0.123456789})");
  EXPECT_TRUE(matches(grammar, "123456789"));
  EXPECT_TRUE(matches(grammar, "-246913578"));
  EXPECT_FALSE(matches(grammar, "123456788"));
  EXPECT_FALSE(matches(grammar, "1e+308"));
}

TEST(JsonSchema, NamesThatDependOnEachOtherComeInEitherOrder) {
  const auto grammar = schema(R"({"type":"object","allOf":[{"dependencies":{"a":["b","c"],"b":["d"]}},{"required":["a"]}]})");
  EXPECT_TRUE(matches(grammar, R"({"a":1,"b":1,"c":1,"d":1})"));
  EXPECT_TRUE(matches(grammar, R"({"b":1,"c":1,"a":1,"d":1})"));
  EXPECT_FALSE(matches(grammar, R"({"a":1,"b":1,"c":1})"));
  EXPECT_FALSE(matches(grammar, R"({"a":1,"b":1,"d":1})"));
  const auto complement = schema(R"({"type":"object","not":{"dependencies":{"a":["b"]}}})");
  EXPECT_TRUE(matches(complement, R"({"a":1,"c":1})"));
  EXPECT_FALSE(matches(complement, R"({"a":1,"b":1})"));
  EXPECT_FALSE(matches(complement, R"({"c":1})"));
}

TEST(JsonSchema, CountedArraysAreNotExpanded) {
  const auto grammar = schema(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":1000000000})");
  EXPECT_FALSE(matches(grammar, "[1]"));
  EXPECT_TRUE(matches(grammar, "[1, 2,3]"));
  EXPECT_LT(grammar->bytes(), 200'000U);
}

TEST(JsonSchema, ContainsCountsItemsOfItsKind) {
  const auto grammar =
      schema(R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":10},"minContains":2,"maxContains":3,"maxItems":4})");
  EXPECT_TRUE(matches(grammar, "[1,10,11]"));
  EXPECT_FALSE(matches(grammar, "[1,10]"));
  EXPECT_FALSE(matches(grammar, "[10,11,12,13]"));
  EXPECT_FALSE(matches(grammar, "[1,2,3,10"));  // two more would be five items
}

TEST(JsonSchema, BranchesAreToldApartExactly) {
  const auto one = schema(R"({"oneOf":[{"type":"integer","minimum":0},{"type":"number","maximum":10}]})");
  EXPECT_TRUE(matches(one, "11"));
  EXPECT_TRUE(matches(one, "0.5"));
  EXPECT_FALSE(matches(one, "5"));
  const auto no = schema(R"({"type":"object","not":{"required":["a"],"properties":{"a":{"const":1}}}})");
  EXPECT_TRUE(matches(no, R"({"a":2})"));
  EXPECT_TRUE(matches(no, "{}"));
  EXPECT_FALSE(matches(no, R"({"a":1})"));
  const auto when = schema(
      R"({"properties":{"k":{"enum":["x","y"]}},"required":["k"],"if":{"properties":{"k":{"const":"x"}}},"then":{"required":["n"]}})");
  EXPECT_TRUE(matches(when, R"({"k":"y"})"));
  EXPECT_FALSE(matches(when, R"({"k":"x"})"));
  EXPECT_TRUE(matches(when, R"({"k":"x","n":null})"));
}

TEST(JsonSchema, RecursionThroughValuesIsFineAndThroughNothingIsHarmless) {
  const auto tree = schema(
      R"({"$defs":{"n":{"type":"object","properties":{"c":{"type":"array","items":{"$ref":"#/$defs/n"}}},"additionalProperties":false}},"$ref":"#/$defs/n"})");
  EXPECT_TRUE(matches(tree, R"({"c":[{},{"c":[{}]}]})"));
  EXPECT_FALSE(matches(tree, R"({"c":[1]})"));
  EXPECT_EQ(schema_error(R"({"$ref":"#"})").code, ErrorCode::unsatisfiable);
  EXPECT_TRUE(matches(schema(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), "null"));
}

TEST(JsonSchema, FormatsKnowTheCalendar) {
  const auto grammar = schema(R"({"type":"string","format":"date-time"})");
  for (const char* text : {R"("2024-02-29T00:00:00Z")", R"("1998-12-31T15:59:60.123-08:00")", R"("1998-12-31T23:59:60Z")"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const char* text :
       {R"("2023-02-29T00:00:00Z")", R"("2024-04-31T00:00:00Z")", R"("1998-12-31T23:59:60+01:00")", R"("1998-12-31T22:59:60Z")"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
}

TEST(JsonSchema, BlanksAreBoundedAndLayoutsAreFixed) {
  const auto flexible = schema(R"({"type":"array"})");
  EXPECT_TRUE(matches(flexible, "[" + std::string(64, ' ') + "]"));
  EXPECT_FALSE(matches(flexible, "[" + std::string(65, ' ') + "]"));
  EXPECT_FALSE(matches(flexible, " []"));
  EXPECT_FALSE(matches(flexible, "[] "));
  const auto compact = schema(R"({"type":"array"})", {.max_blanks = 0});
  EXPECT_TRUE(matches(compact, R"([1,{"a":2}])"));
  EXPECT_FALSE(matches(compact, "[1, 2]"));
  const auto indented = schema(R"({"type":"array"})", {.layout = Layout{.item_separator = ",", .key_separator = ": ", .indent = 2}});
  EXPECT_TRUE(matches(indented, "[\n  1,\n  {\n    \"a\": []\n  }\n]"));
  EXPECT_FALSE(matches(indented, "[1]"));
}

TEST(JsonSchema, ClosedRefusesWhatIsNotDeclared) {
  const auto grammar =
      schema(R"({"type":"object","properties":{"a":{"type":"object"}},"required":["b"]})", {.additional = Additional::closed});
  EXPECT_TRUE(matches(grammar, R"({"a":{"free":1},"b":2})"));
  EXPECT_FALSE(matches(grammar, R"({"b":2,"c":3})"));
}

TEST(JsonSchema, AnyOrderKeepsRequiredAndUniqueNames) {
  const auto grammar =
      schema(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["a"],"additionalProperties":false})",
             {.order = PropertyOrder::any});
  EXPECT_TRUE(matches(grammar, R"({"b":null,"a":1})"));
  EXPECT_FALSE(matches(grammar, R"({"b":null})"));
  EXPECT_FALSE(matches(grammar, R"({"a":1,"a":1})"));
}

TEST(JsonSchema, ErrorsNameKeywordAndPlace) {
  const CompileError unique = schema_error(R"({"type":"array","uniqueItems":true})");
  EXPECT_EQ(unique.code, ErrorCode::unsupported);
  EXPECT_EQ(unique.keyword, "uniqueItems");
  const CompileError type = schema_error(R"({"properties":{"a/b":{"type":"strng"}}})");
  EXPECT_EQ(type.code, ErrorCode::invalid_schema);
  EXPECT_EQ(type.pointer, "/properties/a~1b/type");
  EXPECT_EQ(schema_error(R"({"properties":{"foo":"bar"}})").pointer, "/properties/foo");
  EXPECT_EQ(schema_error(R"({"minLength":"3"})").code, ErrorCode::invalid_schema);
  EXPECT_EQ(schema_error(R"({"required":"a"})").code, ErrorCode::invalid_schema);
  EXPECT_EQ(schema_error(R"({"$ref":"#/nowhere"})").code, ErrorCode::invalid_schema);
  EXPECT_EQ(schema_error(R"({"$ref":"https://example.org/other.json"})").code, ErrorCode::unsupported);
  EXPECT_EQ(schema_error("false").code, ErrorCode::unsatisfiable);
  EXPECT_EQ(schema_error("3").code, ErrorCode::invalid_schema);
  EXPECT_EQ(schema_error("").code, ErrorCode::invalid_json);
  EXPECT_EQ(schema_error(std::string(300, '[')).code, ErrorCode::limit);
}

TEST(JsonSchema, UnknownKeywordsAreListedNotEnforced) {
  const auto grammar = schema(R"({"type":"integer","format":"int32","colour":"red","x-note":1})");
  ASSERT_EQ(grammar->warnings().size(), 1U);  // format says nothing about numbers
  EXPECT_NE(grammar->warnings()[0].find("colour"), std::string::npos);
}

TEST(JsonSchema, HostileSchemasEndInTime) {
  std::string nested = R"({"type":"integer"})";
  for (int i = 0; i < 10; ++i) {
    nested = R"({"oneOf":[{"type":"object","properties":{"a":)" + nested + R"(}},{"type":"array","items":)" + nested.substr(0, 400) + "}]}";
    if (nested.size() > 100'000) {
      break;
    }
  }
  const CompileJob job{
      .kind = GrammarKind::json_schema, .text = nested, .options = {}, .limits = {.compile_time = std::chrono::milliseconds(300)}};
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(compile(job));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

void expect_exact_masks(std::string_view text, std::uint32_t seed) {
  static const auto kWords =
      vocabulary_of({"{\"",     "\":", "\": ", "\", \"", "\"}",   "\"]",    ", ",     "  ",  "\n  ", "na",   "nam", "name\"",
                     "name\":", "id",  "tags", "ab",     "\\u00", "\\\"",   "12",     "0.",  "true", "null", "中",  "\xE4\xB8",
                     "}]",      "},",  "[]",   "{}",     "e\"",   "abcdef", "x\": {", "1, ", "\",",  ":\"",  " \""});
  const auto grammar = schema(text);
  ASSERT_NE(grammar, nullptr);
  std::mt19937 random(seed);
  for (int run = 0; run < 4; ++run) {
    Matcher matcher = matcher_of(grammar, kWords);
    std::vector<std::uint32_t> mask(kWords->mask_words());
    for (int step = 0; step < 25; ++step) {
      matcher.fill_mask(mask);
      ASSERT_EQ(mask, brute_force_mask(matcher, *kWords)) << text << " run " << run << " step " << step << " seed " << seed;
      std::vector<TokenId> allowed;
      for (std::int32_t id = 1; id < kWords->num_rows(); ++id) {
        if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) {
          allowed.push_back(TokenId{id});
        }
      }
      if (allowed.empty()) {
        ASSERT_TRUE(matcher.can_end()) << "a dead end in " << text;
        break;
      }
      // Words of several bytes come last: prefer them, they cross more boundaries.
      const std::size_t pick =
          random() % 3 == 0 ? random() % allowed.size() : allowed.size() - 1 - random() % std::min<std::size_t>(allowed.size(), 6);
      ASSERT_TRUE(matcher.accept(allowed[pick]));
    }
  }
}

TEST(Mask, EqualsBruteForceForSchemas) {
  std::uint32_t seed = 100;
  for (
      const char* text : {
          R"({})",
          R"({"type":"object","properties":{"name":{"type":"string"},"id":{"type":"integer"},"tags":{"type":"array","items":{"type":"string","maxLength":3}}},"required":["id"]})",
          R"({"type":"object","properties":{"name":{"enum":["ab","abcdef"]},"nam":{"const":null}},"additionalProperties":{"type":"boolean"}})",
          R"({"type":"string","minLength":2,"maxLength":4})",
          R"({"type":"string","pattern":"^[a-f]{1,4}$"})",
          R"({"type":"string","pattern":"na"})",
          R"({"anyOf":[{"type":"object","properties":{"id":{"type":"number"}},"required":["id"],"additionalProperties":false},{"type":"array","minItems":1,"maxItems":3}]})",
          R"({"type":"object","patternProperties":{"^n":{"type":"integer"}},"minProperties":1,"maxProperties":2})",
          R"({"type":"array","items":{"enum":["ab",true,null]},"uniqueItems":true,"minItems":2})",
      }) {
    expect_exact_masks(text, seed++);
  }
}

}  // namespace
}  // namespace deepinfer::grammar
