#include "recipe/test_tokenizer.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "recipe/test_files.h"

namespace deepinfer::recipe::testing {

namespace {

tokenizer::Tokenizer load() {
  const std::filesystem::path data = DEEPINFER_TEST_DATA;
  Result<tokenizer::Tokenizer> tokenizer = tokenizer::Tokenizer::parse(read_text_file(data / "tokenizer" / "deepseek-tokenizer.json.gz"),
                                                                       read_text_file(data / "recipe" / "added_tokens.json"));
  if (!tokenizer) {
    std::cerr << "deepseek-tokenizer.json.gz with added_tokens.json: " << tokenizer.error().message << '\n';
    std::abort();
  }
  return std::move(*tokenizer);
}

}  // namespace

const tokenizer::Tokenizer& deepseek_v41() {
  static const tokenizer::Tokenizer tokenizer = load();
  return tokenizer;
}

}  // namespace deepinfer::recipe::testing
