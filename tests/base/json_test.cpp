#include "base/json.h"

#include <gtest/gtest.h>

namespace deepinfer::json {
namespace {

std::string error_of(std::string_view text) {
  const Result<Value> value = parse(text);
  return value ? "no error" : value.error().message;
}

TEST(Json, KeepsOrderAndNumberText) {
  const std::string text = R"({"b":1.50,"a":[1e3,-0,18446744073709551616],"c":{"x":null,"y":true}})";
  const Result<Value> value = parse(text);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(to_text(*value), text);
}

TEST(Json, RepeatedKeyKeepsFirstPlaceAndLastValue) { EXPECT_EQ(to_text(*parse(R"({"a":1,"b":2,"a":3})")), R"({"a":3,"b":2})"); }

TEST(Json, RepeatedKeyInLargeObjectKeepsFirstPlaceAndLastValue) {
  std::string text = "{";
  for (int i = 0; i < 100; ++i) {
    text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  }
  text += "\"k40\":\"last\"}";
  const Result<Value> value = parse(text);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->as_object()->size(), 100U);
  EXPECT_EQ(*value->find("k40"), Value("last"));
}

TEST(Json, EscapesRoundTrip) {
  const Result<Value> value = parse(R"("\"\\\/\b\f\n\r\t\u0001\u00e9\ud83d\ude00")");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(*value->as_string(), "\"\\/\b\f\n\r\t\x01\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(to_text(*value), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\xC3\xA9\xF0\x9F\x98\x80\"");
}

TEST(Json, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("{\n  \"a\": tru}"), "expected a value at line 2 column 8");
  EXPECT_EQ(error_of("[1,]"), "expected a value at line 1 column 4");
  EXPECT_EQ(error_of("[01]"), "a number must not start with 0 at line 1 column 3");
  EXPECT_EQ(error_of("[1] x"), "unexpected text after the value at line 1 column 5");
  EXPECT_EQ(error_of(""), "unexpected end of the text at line 1 column 1");
  EXPECT_EQ(error_of("\"\\ud800\""), "lone surrogate in a string at line 1 column 8");
  EXPECT_EQ(error_of("\"a\xFF\""), "invalid UTF-8 at byte 2");
}

TEST(Json, BytesThatNeedCareAreFoundAtEveryPlace) {
  for (std::size_t before = 0; before < 20; ++before) {
    for (std::size_t after = 0; after < 10; ++after) {
      for (int byte = 0; byte < 256; ++byte) {
        const std::string text = std::string(before, '~') + static_cast<char>(byte) + std::string(after, ' ');
        std::string escaped;
        append_escaped(escaped, text);
        const bool is_plain = byte >= 0x20 && byte != '"' && byte != '\\';
        ASSERT_EQ(escaped == text, is_plain) << byte;
        const Result<Value> value = parse('"' + escaped + '"');
        ASSERT_EQ(value.has_value(), byte < 0x80) << byte;
        if (value) {
          ASSERT_EQ(*value->as_string(), text);
          ASSERT_EQ(parse('"' + text + '"').has_value(), is_plain);
        }
      }
    }
  }
}

TEST(Json, IllFormedUtf8GoesBeforeEveryOtherProblem) {
  EXPECT_EQ(error_of("[1,\xC3\xA9,\"\xC3\xA9\"]"), "expected a value at line 1 column 4");
  EXPECT_EQ(error_of("[1,,\"\xC3\"]"), "invalid UTF-8 at byte 5");
  EXPECT_EQ(error_of("\"\xE4\xB8\xAD\xE4\xB8\""), "invalid UTF-8 at byte 4");
  EXPECT_EQ(error_of("[1] \xFF"), "invalid UTF-8 at byte 4");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text :
       {"{",       "[",         "\"",  "{\"a\"}",  "{\"a\":}", "{a:1}",  "[1 2]",          "nul", "+1", "1.", ".5", "1e", "-", "\"\t\"",
        "\"\\x\"", "\"\\u12\"", "NaN", "Infinity", "'a'",      "[1,,2]", "\xEF\xBB\xBF{}", "1e+"}) {
    EXPECT_FALSE(parse(text).has_value()) << text;
  }
}

TEST(Json, DepthIsLimitedBeforeTheStack) {
  const std::string deep(100000, '[');
  EXPECT_EQ(parse(deep).error().kind, ErrorKind::exhausted);
  EXPECT_TRUE(parse("[[[1]]]", {.max_depth = 3}).has_value());
  EXPECT_FALSE(parse("[[[1]]]", {.max_depth = 2}).has_value());
}

TEST(Json, FiniteNumbersCanBeDemanded) {
  constexpr ParseLimits kFinite{.finite_numbers = true};
  EXPECT_EQ(parse("[1,1e999]", kFinite).error().message, "number out of range at line 1 column 9");
  EXPECT_FALSE(parse(std::string(309, '9'), kFinite).has_value());
  EXPECT_TRUE(parse("[1e999]").has_value());
  EXPECT_TRUE(parse("[1e308,1e-999,0e999," + std::string(308, '9') + "]", kFinite).has_value());
}

TEST(Json, UniqueKeysCanBeDemanded) {
  constexpr ParseLimits kUnique{.unique_keys = true};
  EXPECT_EQ(parse(R"({"a":1,"b":{"a":2}})", kUnique).has_value(), true);
  EXPECT_EQ(parse(R"({"a":1,"a":2})", kUnique).error().message, "the key \"a\" twice in one object at line 1 column 13");
  std::string many = "{";
  for (int i = 0; i < 40; ++i) {
    many += '"' + std::to_string(i) + "\":0,";
  }
  EXPECT_TRUE(parse(many + "\"40\":0}", kUnique).has_value());
  EXPECT_FALSE(parse(many + "\"39\":0}", kUnique).has_value());
  EXPECT_TRUE(parse(many + "\"39\":0}").has_value());
}

TEST(Json, NumbersConvertOnlyWhenTheyFit) {
  EXPECT_EQ(Number{"9223372036854775807"}.as_int64(), INT64_MAX);
  EXPECT_EQ(Number{"9223372036854775808"}.as_int64(), std::nullopt);
  EXPECT_EQ(Number{"18446744073709551615"}.as_uint64(), UINT64_MAX);
  EXPECT_EQ(Number{"1.0"}.as_int64(), std::nullopt);
  EXPECT_EQ(Number{"1e999"}.as_double(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Number{"1e-999"}.as_double(), 0.0);
  EXPECT_EQ(Number{"-0.1e999"}.as_double(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(Number{"1000.5e-999"}.as_double(), 0.0);
  EXPECT_EQ(Number{"1" + std::string(400, '0') + "e-5"}.as_double(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Number{"1e-99999999999999999999"}.as_double(), 0.0);
  EXPECT_EQ(Number{"0.0e99999999999999999999"}.as_double(), 0.0);
  EXPECT_EQ(to_text(Value(0.1)), "0.1");
  EXPECT_EQ(to_text(Value(3.0)), "3.0");
}

}  // namespace
}  // namespace deepinfer::json
