#include "tokenizer/byte_pair_encoder.h"

#include <string>

#include "tokenizer/byte_alphabet.h"

namespace deepinfer::tokenizer {

namespace {

/// The tokens of the model, as the text that they stand for.
std::optional<ByteTrie> whole_pieces_of(const TokenizerFile& file) {
  std::vector<std::string> texts;
  std::vector<std::int32_t> tokens;
  for (std::size_t id = 0; id < file.spellings.size(); ++id) {
    const bool is_model_token = !file.spellings[id].empty() && static_cast<std::int32_t>(id) < file.num_model_ids;
    std::optional<std::string> bytes = is_model_token ? bytes_of_spelling(file.spellings[id]) : std::nullopt;
    if (bytes) {
      texts.push_back(std::move(*bytes));
      tokens.push_back(static_cast<std::int32_t>(id));
    }
  }
  std::vector<ByteTrie::Entry> entries;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    entries.push_back({.text = texts[i], .value = tokens[i]});
  }
  return ByteTrie::build(std::move(entries));
}

}  // namespace

std::optional<BytePairEncoder> BytePairEncoder::build(const TokenizerFile& file) {
  std::optional<LongestMatchEncoder> longest_match = LongestMatchEncoder::build(file);
  std::variant<LongestMatchEncoder, HeapEncoder> encoder =
      longest_match ? std::variant<LongestMatchEncoder, HeapEncoder>(std::move(*longest_match)) : HeapEncoder(file);
  BytePairEncoder out(std::move(encoder));
  if (file.is_whole_piece_first) {
    out.whole_pieces_ = whole_pieces_of(file);
    if (!out.whole_pieces_) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace deepinfer::tokenizer
