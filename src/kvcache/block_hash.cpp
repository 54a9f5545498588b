#include "kvcache/block_hash.h"

#include <charconv>
#include <string>

#include "base/sha256.h"

namespace deepinfer::kvcache {
namespace {

constexpr std::size_t kHexDigits = 16;  // of one word

BlockHash first_words(const std::string& digest) {
  BlockHash out;
  for (std::size_t i = 0; i < out.words.size(); ++i) {
    const char* begin = digest.data() + i * kHexDigits;
    std::from_chars(begin, begin + kHexDigits, out.words[i], 16);
  }
  return out;
}

}  // namespace

BlockHash root_hash(std::string_view salt) { return content_hash(std::as_bytes(std::span(salt))); }

BlockHash next_hash(const BlockHash& parent, std::span<const TokenId> tokens, std::span<const BlockImage> images) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(parent.words)));
  hash.update(std::as_bytes(tokens));
  for (const BlockImage& image : images) {
    hash.update(std::as_bytes(std::span(&image.first, 1)));
    hash.update(std::as_bytes(std::span(image.content.words)));
  }
  return first_words(hash.finish());
}

BlockHash content_hash(std::span<const std::byte> bytes) { return first_words(sha256(bytes)); }

}  // namespace deepinfer::kvcache
