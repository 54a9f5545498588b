// A sample of the shared corpus through the byte matcher: every label must be decided rightly. The whole of it, with masks
// and times, is the business of grammar_bar.py.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <set>

#include "base/json.h"
#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;

std::set<std::size_t> indices(const json::Value& line, std::string_view member) {
  std::set<std::size_t> out;
  const json::Value* list = line.find(member);
  if (list != nullptr && list->as_array() != nullptr) {
    for (const json::Value& index : *list->as_array()) {
      out.insert(static_cast<std::size_t>(index.as_number()->as_int64().value_or(0)));
    }
  }
  return out;
}

void check_line(const json::Value& line, GrammarKind kind) {
  const std::string& id = *line.find("id")->as_string();
  const json::Value* text = line.find("grammar");
  const auto grammar = try_compile(kind, text->as_string() != nullptr ? *text->as_string() : "");
  const std::string& expected = *line.find("expect")->as_string();
  if (!grammar) {
    EXPECT_NE(expected, "compile") << id << ": " << grammar.error().message;
    return;
  }
  EXPECT_NE(expected, "must_error") << id;
  std::set<std::size_t> free = indices(line, "out_of_order");
  free.merge(indices(line, "spelling"));
  const json::Array& accept = *line.find("accept")->as_array();
  for (std::size_t i = 0; i < accept.size(); ++i) {
    EXPECT_TRUE(free.contains(i) || matches(*grammar, *accept[i].as_string())) << id << " refuses " << *accept[i].as_string();
  }
  for (const json::Value& wrong : *line.find("reject")->as_array()) {
    EXPECT_FALSE(matches(*grammar, *wrong.as_string())) << id << " takes " << *wrong.as_string();
  }
}

void check_file(const std::string& name, GrammarKind kind, std::size_t every) {
  std::ifstream file(std::string(DEEPINFER_SHARED) + "/data/grammar/" + name);
  if (!file) {
    std::cout << "absent: " << name << "\n";
    return;
  }
  std::size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    if (number++ % every != 0) {
      continue;
    }
    const Result<json::Value> line = json::parse(text);
    ASSERT_TRUE(line.has_value()) << name << " line " << number;
    check_line(*line, kind);
  }
}

TEST(Corpus, RegularExpressionsAreDecidedRightly) { check_file("regex.jsonl", GrammarKind::regex, 2); }
TEST(Corpus, GrammarsAreDecidedRightly) { check_file("ebnf.jsonl", GrammarKind::ebnf, 1); }
TEST(Corpus, AnyObjectIsDecidedRightly) { check_file("object.jsonl", GrammarKind::json_object, 1); }

}  // namespace
}  // namespace deepinfer::grammar
