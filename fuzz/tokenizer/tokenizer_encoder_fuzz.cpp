// Merges and a piece out of any bytes: the encoder that takes longest tokens gives what the heap of merges gives.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/heap_encoder.h"
#include "tokenizer/longest_match_encoder.h"

using namespace deepinfer;
using namespace deepinfer::tokenizer;

namespace {

/// The bytes as tokens 0 … 255; each pair of input bytes merges two of the letters a … d and the merged tokens so far.
TokenizerFile file_of(std::span<const std::uint8_t> input) {
  constexpr std::size_t kMaxTokenBytes = 64;
  TokenizerFile file;
  for (int byte = 0; byte < 256; ++byte) {
    file.spellings.push_back(spelling_of_bytes(std::string(1, static_cast<char>(byte))));
    file.byte_tokens[static_cast<std::size_t>(byte)] = byte;
  }
  std::vector<std::int32_t> tokens{'a', 'b', 'c', 'd'};
  for (std::size_t i = 0; i + 1 < input.size(); i += 2) {
    const std::int32_t left = tokens[input[i] % tokens.size()];
    const std::int32_t right = tokens[input[i + 1] % tokens.size()];
    const std::string joined = file.spellings[static_cast<std::size_t>(left)] + file.spellings[static_cast<std::size_t>(right)];
    const auto known = std::ranges::find(file.spellings, joined);
    const auto result = static_cast<std::int32_t>(known - file.spellings.begin());
    if (joined.size() > kMaxTokenBytes) {
      continue;
    }
    if (known == file.spellings.end()) {
      file.spellings.push_back(joined);
      tokens.push_back(result);
    }
    file.merges.push_back({.left = left, .right = right, .result = result});
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> input(data, size);
  const std::size_t num_merge_bytes = size / 2;
  const TokenizerFile file = file_of(input.first(num_merge_bytes));
  std::string piece;
  for (const std::uint8_t byte : input.subspan(num_merge_bytes)) {
    piece.push_back(static_cast<char>('a' + byte % 5));
  }
  const std::optional<LongestMatchEncoder> longest_match = LongestMatchEncoder::build(file);
  if (!longest_match || piece.empty()) {
    return 0;
  }
  LongestMatchEncoder::Scratch scratch;
  std::vector<TokenId> ids;
  longest_match->encode(piece, piece.size(), scratch, ids);
  HeapEncoder::Scratch heap_scratch;
  std::vector<TokenId> expected;
  HeapEncoder(file).encode(piece, heap_scratch, expected);
  check(ids == expected, "both encoders give the same tokens");
  return 0;
}
