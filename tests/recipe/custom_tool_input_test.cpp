// The input of a custom tool call out of its arguments, whole and in pieces.
#include "recipe/custom_tool_input.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::recipe {
namespace {

std::string input_of(const std::vector<std::string_view>& pieces) {
  CustomToolInput decoder;
  std::string input;
  for (const std::string_view piece : pieces) {
    decoder.take(piece, input);
  }
  decoder.finish(input);
  return input;
}

const std::vector<std::pair<std::string_view, std::string_view>>& cases() {
  static const std::vector<std::pair<std::string_view, std::string_view>> table = {
      {R"({"input": "a\n\"b\"\\ é"})", "a\n\"b\"\\ é"},
      {R"({"input": "", "more": "lost"})", ""},
      {"{\n \"input\"\t:\r \"blanks\"}", "blanks"},
      {R"({"input": "\u00e9\ud83d\ude00\/\b\f\r\t"})", "é😀/\b\f\r\t"},
      {R"({"input": "\q \u12G4 \u12é4 \ude00 \ud83dx \ud83d\n \ud83d\u0041."})",
       R"(\q \u12G4 \u12é4 \ude00 \ud83dx \ud83d\n \ud83d\u0041.)"},
      {R"({"input": "a quote in \u12" is part of it")", R"(a quote in \u12" is part of it)"},
      {R"({"input": "not closed \ud83d)", R"(not closed \ud83d)"},
      {R"({"input": ["no", "string"]})", R"({"input": ["no", "string"]})"},
      {R"({"text": "another key"})", R"({"text": "another key"})"},
      {R"({"inp)", R"({"inp)"},
      {"{}", "{}"},
      {"", ""},
  };
  return table;
}

TEST(CustomToolInput, TakesTheStringOutOrTheArgumentsAsTheyAre) {
  for (const auto& [arguments, input] : cases()) {
    EXPECT_EQ(input_of({arguments}), input) << arguments;
  }
}

TEST(CustomToolInput, PiecesDoNotMatter) {
  for (const auto& [arguments, input] : cases()) {
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      EXPECT_EQ(input_of({arguments.substr(0, i), arguments.substr(i)}), input) << arguments << ", cut at " << i;
      bytes.push_back(arguments.substr(i, 1));
    }
    EXPECT_EQ(input_of(bytes), input) << arguments;
  }
}

TEST(CustomToolInput, GivesTextAsSoonAsItIsCertain) {
  CustomToolInput decoder;
  std::string input;
  decoder.take("{\"input\": ", input);
  EXPECT_EQ(input, "");
  decoder.take("\"a\\", input);
  EXPECT_EQ(input, "a");
  decoder.take("nb", input);
  EXPECT_EQ(input, "a\nb");
}

}  // namespace
}  // namespace deepinfer::recipe
