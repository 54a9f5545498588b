#include "base/utf8.h"

#include <gtest/gtest.h>

namespace deepinfer::utf8 {
namespace {

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(first_invalid(""), 0U);
  EXPECT_EQ(first_invalid("plain ascii text that is long enough"), 36U);
  EXPECT_EQ(first_invalid("12345678\xC3\xA9\xF0\x9F\x98\x80"), 14U);
  EXPECT_EQ(first_invalid("ab\xC0\x80"), 2U);          // overlong
  EXPECT_EQ(first_invalid("ab\xED\xA0\x80"), 2U);      // surrogate
  EXPECT_EQ(first_invalid("ab\xF4\x90\x80\x80"), 2U);  // above U+10FFFF
  EXPECT_EQ(first_invalid("ab\xE2\x82"), 2U);          // cut short
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (std::uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    std::string text;
    append(text, c);
    ASSERT_EQ(sequence_length(text), text.size());
    ASSERT_EQ(decode(text), c);
  }
}

TEST(Utf8, AMultibyteRunEndsAtAsciiAndAtIllFormedBytes) {
  EXPECT_EQ(multibyte_run(""), 0U);
  EXPECT_EQ(multibyte_run("a\xC3\xA9"), 0U);
  EXPECT_EQ(multibyte_run("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80 \xC3\xA9"), 9U);
  EXPECT_EQ(multibyte_run("\xE4\xB8\xAD\xE4\xB8"), 3U);
  EXPECT_EQ(multibyte_run("\xE4\xB8\xAD\xE4\xB8z"), 3U);
  EXPECT_EQ(multibyte_run("\xE0\x80\x80"), 0U);  // overlong
  EXPECT_EQ(multibyte_run("\xED\xA0\x80"), 0U);  // surrogate
}

TEST(Utf8, ReplacesMaximalIllFormedParts) {
  EXPECT_EQ(replace_invalid("a\xF0\x9F\x98z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(replace_invalid("\xFF\xFE"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid("\xE2\x82"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace deepinfer::utf8
