// Which ids may be appended without sampling when the grammar forces bytes.
#pragma once

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "grammar/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::grammar {

/// The tokenizer's own split of `text`, without trailing ids that a longer text could split otherwise.
[[nodiscard]] std::vector<TokenId> forced_ids(const tokenizer::Tokenizer& tokenizer, const Vocabulary& vocabulary, std::string_view text);

}  // namespace deepinfer::grammar
