#include "recipe/schema_check.h"

#include <gtest/gtest.h>

#include "recipe/regex_check.h"

namespace deepinfer::recipe {
namespace {

bool is_schema(std::string_view text) {
  const Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value && !schema_problem(*value);
}

TEST(SchemaCheck, ObjectsAndBooleansAreSchemas) {
  for (const char* text : {"{}", "true", "false", R"({"type":"object","unknown":5})"}) {
    EXPECT_TRUE(is_schema(text)) << text;
  }
  for (const char* text : {"null", "5", "\"x\"", "[]"}) {
    EXPECT_FALSE(is_schema(text)) << text;
  }
}

TEST(SchemaCheck, KeywordsHaveTheShapeOfTheirDraft) {
  for (const char* text : {R"({"maxLength":1.0})", R"({"required":[]})", R"({"enum":[1,1]})", R"({"prefixItems":[{}]})",
                           R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true})",
                           R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{}]})",
                           R"({"$schema":"http://json-schema.org/draft-07/schema","$defs":5})"}) {
    EXPECT_TRUE(is_schema(text)) << text;
  }
  for (const char* text :
       {R"({"type":"any"})", R"({"type":["string","string"]})", R"({"maxLength":-1})", R"({"maxLength":0.5})", R"({"required":["a","a"]})",
        R"({"multipleOf":0})", R"({"items":[{}]})", R"({"anyOf":[]})", R"({"properties":{"a":{"properties":5}}})", R"({"$anchor":"1"})",
        R"({"$id":"a#b"})", R"({"$schema":"http://json-schema.org/draft-04/schema#","required":[]})",
        R"({"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":true})",
        R"({"$schema":"http://json-schema.org/draft-04/schema#","maxLength":1.0})",
        R"({"$schema":"http://json-schema.org/draft-03/schema#"})"}) {
    EXPECT_FALSE(is_schema(text)) << text;
  }
}

TEST(SchemaCheck, ReferencesPointIntoTheDocument) {
  for (const char* text :
       {R"({"$ref":"#"})", R"({"$defs":{"a b":{}},"$ref":"#/$defs/a%20b"})", R"({"$defs":{"a/b":{}},"$ref":"#/$defs/a~1b"})",
        R"({"$defs":{"x":{"$anchor":"a"}},"$ref":"#a"})", R"({"$id":"http://a/b","$defs":{"x":{"$id":"c"}},"$ref":"c"})",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
        R"({"$ref":"https://json-schema.org/draft/2020-12/schema"})", R"({"properties":{"$ref":{"type":"string"}}})",
        R"({"$defs":{"unused":{"$ref":"#/nope"}}})", R"({"const":{"$ref":"http://a/b"}})", R"({"if":{"$ref":"#/nope"}})"}) {
    EXPECT_TRUE(is_schema(text)) << text;
  }
  for (const char* text :
       {R"({"$ref":"#/nope"})", R"({"$ref":"#nope"})", R"({"$ref":"http://a/b"})", R"({"$ref":"a b"})", R"({"$ref":"x"})",
        R"({"foo":5,"$ref":"#/foo"})", R"({"foo":{"type":"x"},"$ref":"#/foo"})", R"({"$defs":{"unused":{"$ref":"http://a/b"}}})",
        R"({"not":{"$ref":"#/nope"}})", R"({"$id":"http://a/b","$ref":"c"})"}) {
    EXPECT_FALSE(is_schema(text)) << text;
  }
}

TEST(RegexCheck, AcceptsWhatTheOfficialPackageAccepts) {
  for (const char* pattern : {"",
                              "]",
                              "}",
                              "a++",
                              "a*?",
                              "a{1}{2}",
                              "^*",
                              "(?<n>a)",
                              "(?P<n>a)",
                              "(?i)a",
                              "(?s-i:a)",
                              "(a)\\1",
                              "\\x41",
                              "\\x{41}",
                              "\\u0041",
                              "\\cA",
                              "\\p{L}",
                              "\\pL",
                              "\\p{Script=Greek}",
                              "\\p{IsGreek}",
                              "\\P{^Lu}",
                              "\\-",
                              "[]a]",
                              "[^]a]",
                              "[a-]",
                              "[[a]]",
                              "[[]",
                              "[\\w-]",
                              "[--a]",
                              "(|a)",
                              "(?<=a+)",
                              "^(?!.*foo).*$",
                              "x{1,02}",
                              "[日-本]"}) {
    EXPECT_TRUE(is_valid_regex(pattern)) << pattern;
  }
}

TEST(RegexCheck, RefusesWhatTheOfficialPackageRefuses) {
  for (const char* pattern : {"(",
                              ")",
                              "[",
                              "*",
                              "\\",
                              "a**",
                              "a{",
                              "a{,2}",
                              "a{2,1}",
                              "{1}",
                              "(?:a",
                              "(?<n>a)\\k<n>",
                              "(?<n>a)(?<n>b)",
                              "(?>a)",
                              "(?#c)",
                              "\\1",
                              "(a)\\2",
                              "\\0",
                              "\\x4",
                              "\\u",
                              "\\q",
                              "\\é",
                              "\\p{foo}",
                              "\\p{L",
                              "[z-a]",
                              "[]",
                              "[^]",
                              "[a-\\d]",
                              "[\\w-z]",
                              "[\\b]",
                              "[\\1]",
                              "(?=a)*",
                              "(?)",
                              "\\ud83d\\ude00",
                              "\\u{110000}",
                              "a{4294967296}",
                              "(?(1)a)"}) {
    EXPECT_FALSE(is_valid_regex(pattern)) << pattern;
  }
}

}  // namespace
}  // namespace deepinfer::recipe
