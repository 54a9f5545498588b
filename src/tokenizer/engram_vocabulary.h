// Classes of tokens whose texts differ only in case, accents and blanks: the ids that Engram hashes (model.md 5.6.1).
// Not the hashing: that is model/.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {

struct EngramVocabulary {
  std::vector<std::int32_t> class_of;  ///< [vocab_size] class of each token id, numbered by first appearance
  std::int32_t num_classes = 0;
};

[[nodiscard]] EngramVocabulary compress_vocabulary(const Tokenizer& tokenizer);

}  // namespace deepinfer::tokenizer
