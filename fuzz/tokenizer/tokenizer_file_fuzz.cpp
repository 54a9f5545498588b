// Any bytes as tokenizer.json: a sentence or a tokenizer. With a tokenizer, any text survives the way there and back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/engram_vocabulary.h"
#include "tokenizer/tokenizer.h"

using namespace deepinfer;
using namespace deepinfer::tokenizer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(input.find('\0'), size);
  const std::string_view text = input.substr(std::min(zero + 1, size));
  const Result<Tokenizer> tokenizer = Tokenizer::parse(input.substr(0, zero));
  if (!tokenizer) {
    check(!tokenizer.error().message.empty(), "an error says what is wrong");
    return 0;
  }
  const std::vector<TokenId> plain = tokenizer->encode(text, AddedTokens::ignore);
  check(tokenizer->decode(plain, SpecialTokens::keep) == utf8::replace_invalid(text), "text survives the way there and back");
  const std::vector<TokenId> ids = tokenizer->encode(text, AddedTokens::recognise);
  Detokenizer detokenizer(*tokenizer);
  std::string streamed;
  for (const TokenId id : ids) {
    detokenizer.append(id, streamed);
  }
  detokenizer.finish(streamed);
  check(streamed == tokenizer->decode(ids, SpecialTokens::keep), "pieces put together are the whole");
  const EngramVocabulary engram = compress_vocabulary(*tokenizer);
  check(engram.class_of.size() == static_cast<std::size_t>(tokenizer->vocab_size()), "every id has a class");
  return 0;
}
