#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace deepinfer {
namespace {

std::string hash_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameAsTheWhole) {
  const std::string text(517, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(text).first(cut)));
    hash.update(std::as_bytes(std::span(text).subspan(cut)));
    ASSERT_EQ(hash.finish(), hash_of(text));
  }
}

}  // namespace
}  // namespace deepinfer
