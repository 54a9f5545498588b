// The recipe probe as a program of its own, for comparisons with the official package (recipe_diff.py). No test.
// Usage: recipe_probe [--tokenizer FILE] [--added-tokens FILE], request lines on stdin, answer lines on stdout.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include "recipe/probe.h"

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace

int main(int argc, char** argv) {
  std::string tokenizer_json;
  std::string added_tokens_json;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    (flag == "--added-tokens" ? added_tokens_json : tokenizer_json) = read_file(argv[i + 1]);
  }
  std::optional<deepinfer::tokenizer::Tokenizer> tokenizer;
  if (!tokenizer_json.empty()) {
    auto loaded = deepinfer::tokenizer::Tokenizer::parse(tokenizer_json, added_tokens_json);
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      return 1;
    }
    tokenizer = std::move(*loaded);
  }
  const deepinfer::recipe::ProbeContext context{.tokenizer = tokenizer ? &*tokenizer : nullptr};
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty()) {
      std::cout << deepinfer::recipe::answer_probe_line(context, line) << std::endl;
    }
  }
  return 0;
}
