#include "grammar/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::grammar {

Vocabulary make_vocabulary(const tokenizer::Tokenizer& tokenizer, std::int32_t num_rows) {
  std::vector<VocabularyToken> tokens(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const TokenId id{static_cast<std::int32_t>(i)};
    tokens[i].bytes = std::string(tokenizer.bytes(id));
    tokens[i].is_control = tokenizer.is_special(id) || tokenizer.find(tokens[i].bytes) == std::optional(id);
  }
  return Vocabulary(std::move(tokens), num_rows == 0 ? tokenizer.vocab_size() : num_rows);
}

}  // namespace deepinfer::grammar
