// The tokenizer of V4.1 for tests of replies: the V3 file with the tokens of recipe.md section 1 over it.
#pragma once

#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe::testing {

/// Built once per process; a missing file ends it with a message.
const tokenizer::Tokenizer& deepseek_v41();

}  // namespace deepinfer::recipe::testing
