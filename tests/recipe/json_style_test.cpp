#include "recipe/json_style.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace deepinfer::recipe {
namespace {

/// Official spellings of numbers: inputs with their Python and compact forms.
json::Value official_numbers() {
  std::ifstream file(DEEPINFER_TEST_DATA "/recipe/numbers.json");
  std::ostringstream text;
  text << file.rdbuf();
  return json::parse(text.str()).value_or(json::Value());
}

TEST(JsonStyle, NumbersAreSpelledAsTheOfficialPackageSpellsThem) {
  const json::Value numbers = official_numbers();
  ASSERT_NE(numbers.find("inputs"), nullptr);
  const json::Array& inputs = *numbers.find("inputs")->as_array();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const json::Value value = json::parse(*inputs[i].as_string()).value();
    EXPECT_EQ(python_json(value), *(*numbers.find("python_style")->as_array())[i].as_string());
    EXPECT_EQ(compact_json(value), *(*numbers.find("serde_compact_style")->as_array())[i].as_string());
  }
  for (const json::Value& pair : *numbers.find("python_repr_extra")->as_array()) {
    const json::Value value = json::parse(*(*pair.as_array())[0].as_string()).value();
    EXPECT_EQ(python_json(value), *(*pair.as_array())[1].as_string());
  }
}

TEST(JsonStyle, IntegersBeyondSixtyFourBitsBecomeDoubles) {
  EXPECT_EQ(python_json(json::Number{"18446744073709551615"}), "18446744073709551615");
  EXPECT_EQ(python_json(json::Number{"18446744073709551616"}), "1.8446744073709552e+19");
  EXPECT_EQ(python_json(json::Number{"-9223372036854775809"}), "-9.223372036854776e+18");
  EXPECT_EQ(python_json(json::Number{"-0"}), "-0.0");
}

TEST(JsonStyle, SeparatorsAndEscapesFollowTheStyle) {
  const json::Value value = json::parse("{\"a\":[1,\"\\u0001\\u007f\\n\\u2028é\"],\"b\":{}, \"c\":[]}").value();
  EXPECT_EQ(python_json(value), "{\"a\": [1, \"\\u0001\x7f\\n\u2028é\"], \"b\": {}, \"c\": []}");
  EXPECT_EQ(compact_json(value), "{\"a\":[1,\"\\u0001\x7f\\n\u2028é\"],\"b\":{},\"c\":[]}");
}

}  // namespace
}  // namespace deepinfer::recipe
