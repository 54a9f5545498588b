#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/utf8.h"
#include "tokenizer/reference_tokenizer.h"
#include "tokenizer/test_data.h"

namespace deepinfer::tokenizer {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(Pattern pattern, std::string_view text) {
  const PreTokenizer pre_tokenizer(pattern, std::make_shared<const CharClasses>());
  Pieces out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pre_tokenizer.piece_end(text, begin);
    EXPECT_GT(end, begin);
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

Pieces deepseek_pieces(std::string_view text) { return pieces_of(Pattern::deepseek, text); }

TEST(DeepseekPattern, DigitsComeInThreesFromTheLeft) {
  EXPECT_EQ(deepseek_pieces("1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(deepseek_pieces("a12 ٣٤٥٦"), (Pieces{"a", "12", " ", "٣٤٥", "٦"}));
}

TEST(DeepseekPattern, WordTakesOneCharacterInFront) {
  EXPECT_EQ(deepseek_pieces("one two\tthree"), (Pieces{"one", " two", "\tthree"}));
  EXPECT_EQ(deepseek_pieces("  two"), (Pieces{" ", " two"}));
  EXPECT_EQ(deepseek_pieces("\n two"), (Pieces{"\n", " two"}));
}

TEST(DeepseekPattern, SignTakesAsciiLettersBehindItOnly) {
  EXPECT_EQ(deepseek_pieces(".size()"), (Pieces{".size", "()"}));
  EXPECT_EQ(deepseek_pieces("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(deepseek_pieces("'été"), (Pieces{"'", "été"}));
  EXPECT_EQ(deepseek_pieces("-aé"), (Pieces{"-a", "é"}));
  EXPECT_EQ(deepseek_pieces("…a"), (Pieces{"…", "a"}));
}

TEST(DeepseekPattern, SignsTakeTheSpaceInFrontAndTheNewlinesBehind) {
  EXPECT_EQ(deepseek_pieces("a !?\r\n\nb"), (Pieces{"a", " !?\r\n\n", "b"}));
  EXPECT_EQ(deepseek_pieces("\t!"), (Pieces{"\t", "!"}));
}

TEST(DeepseekPattern, BlanksEndBehindTheLastNewlineOrLeaveOneForTheWord) {
  EXPECT_EQ(deepseek_pieces("  \n \n   x"), (Pieces{"  \n \n", "  ", " x"}));
  EXPECT_EQ(deepseek_pieces("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(deepseek_pieces("a   7"), (Pieces{"a", "   ", "7"})) << "a digit is the end of the piece that blanks are in";
  EXPECT_EQ(deepseek_pieces("a   。"), (Pieces{"a", "  ", " 。"}));
}

TEST(DeepseekPattern, CjkRunsStandApartAndAreSplitAgain) {
  EXPECT_EQ(deepseek_pieces("abc中文ひらdef"), (Pieces{"abc", "中文ひら", "def"}));
  EXPECT_EQ(deepseek_pieces("中・文"), (Pieces{"中", "・", "文"}));
  EXPECT_EQ(deepseek_pieces(" 中"), (Pieces{" ", "中"}));
  EXPECT_EQ(deepseek_pieces("한글 말"), (Pieces{"한글", " 말"})) << "Hangul is not in the second step";
}

TEST(DeepseekPattern, CharactersThatMatchNothingFormOnePiece) {
  EXPECT_EQ(deepseek_pieces("\x01\x02\x03"), (Pieces{"\x01\x02\x03"}));
  EXPECT_EQ(deepseek_pieces("\x01\x02word"), (Pieces{"\x01", "\x02word"}));
  EXPECT_EQ(deepseek_pieces("\x01 \x02"), (Pieces{"\x01", " ", "\x02"}));
}

TEST(Gpt2Pattern, ContractionsWordsNumbersAndSigns) {
  EXPECT_EQ(pieces_of(Pattern::gpt2, "I'll say 12345 things!!"), (Pieces{"I", "'ll", " say", " 12345", " things", "!!"}));
  EXPECT_EQ(pieces_of(Pattern::gpt2, "a  b\n\nc  "), (Pieces{"a", " ", " b", "\n", "\n", "c", "  "}));
  EXPECT_EQ(pieces_of(Pattern::gpt2, "x\u3000\u3000y"), (Pieces{"x", "\u3000", "\u3000", "y"}));
}

TEST(PreTokenizer, RandomTextHasThePiecesOfTheRegularExpressions) {
  std::cout << "seeds 0 … 499\n";
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    const std::string text = testing::random_text(seed, 1 + static_cast<int>(seed % 60));
    for (const Pattern pattern : {Pattern::deepseek, Pattern::gpt2}) {
      ASSERT_EQ(pieces_of(pattern, text), testing::reference_pieces(pattern, text)) << "seed " << seed << " text " << text;
    }
  }
}

TEST(PreTokenizer, PiecesOfIllFormedBytesMakeUpTheText) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::string text = testing::random_bytes(seed, 200);
    for (const Pattern pattern : {Pattern::deepseek, Pattern::gpt2}) {
      std::string joined;
      for (const std::string& piece : pieces_of(pattern, text)) {
        joined += piece;
      }
      ASSERT_EQ(joined, text) << "seed " << seed;
    }
  }
}

TEST(CharClasses, EveryCharacterHasExactlyOneBasicClass) {
  const CharClasses classes;
  constexpr std::uint8_t kOnTop = CharClass::kNewline | CharClass::kCjk;
  for (std::uint32_t code_point = 0; code_point < 0x110000; ++code_point) {
    ASSERT_EQ(std::popcount(static_cast<unsigned>(classes.of(code_point) & ~kOnTop)), 1) << code_point;
  }
}

TEST(CharClasses, SpecifiedCharactersAreSpacesAndOthersAreNot) {
  const CharClasses classes;
  for (const std::uint32_t space :
       {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}) {
    EXPECT_TRUE((classes.of(space) & CharClass::kSpace) != 0) << space;
  }
  for (const std::uint32_t other : {0x200B, 0xFEFF, 0x1C, 0x1D, 0x1E, 0x1F, 0x180E}) {
    EXPECT_TRUE((classes.of(other) & CharClass::kSpace) == 0) << other;
  }
}

TEST(CharClasses, ReadingGivesLengthsAndStopsAtTheEnd) {
  const CharClasses classes;
  const std::string text = "aé中😀";
  std::vector<int> lengths;
  for (std::size_t at = 0; at < text.size();) {
    lengths.push_back(classes.read(text, at).length_bytes);
    at += static_cast<std::size_t>(lengths.back());
  }
  EXPECT_EQ(lengths, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(classes.read(text, text.size()).bits, 0);
}

TEST(CharClasses, IllFormedBytesAreCharactersOfTheirOwn) {
  const CharClasses classes;
  for (const std::string_view text : {"\x80", "\xC0\xAF", "\xE4\xB8", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xFF", "\xC3("}) {
    const ClassifiedChar read = classes.read(text, 0);
    EXPECT_EQ(read.bits, CharClass::kOther);
    EXPECT_EQ(read.length_bytes, 1);
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
