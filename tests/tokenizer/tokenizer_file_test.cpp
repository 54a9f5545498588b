#include "tokenizer/tokenizer_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/test_data.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {
namespace {

/// A small valid tokenizer.json to damage: 256 bytes, two merges, two added tokens, the GPT-2 pattern.
json::Value small_file() {
  json::Object vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab.set(spelling_of_bytes(std::string(1, static_cast<char>(byte))), byte);
  }
  vocab.set("ab", 256);
  vocab.set("abc", 257);
  const json::Object model{{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"vocab", vocab},
                           {"merges", json::Array{json::Value("a b"), json::Value(json::Array{json::Value("ab"), json::Value("c")})}}};
  const auto added = [](int id, const char* content) {
    return json::Value(json::Object{{"id", id}, {"content", content}, {"special", true}, {"normalized", false}});
  };
  return json::Object{{"added_tokens", json::Array{added(258, "<s>"), added(259, "</s>")}},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                      {"decoder", json::Object{{"type", "ByteLevel"}}},
                      {"model", model}};
}

/// The error that loading gives after `damage`.
Error error_after(const std::function<void(json::Object&)>& damage) {
  json::Value file = small_file();
  damage(*file.as_object());
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json::to_text(file));
  EXPECT_FALSE(tokenizer.has_value());
  return tokenizer ? Error{} : tokenizer.error();
}

json::Object& model_of(json::Object& file) { return *file.find("model")->as_object(); }

void expect_error(const std::function<void(json::Object&)>& damage, ErrorKind kind, std::string_view part_of_message) {
  const Error error = error_after(damage);
  EXPECT_EQ(error.kind, kind) << error.message;
  EXPECT_NE(error.message.find(part_of_message), std::string::npos) << error.message;
}

TEST(TokenizerFile, SmallFileLoads) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json::to_text(small_file()));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->encode("abc<s>ab", AddedTokens::recognise), testing::ids_of({257, 258, 256}));
}

TEST(TokenizerFile, TextThatIsNoJsonIsRefused) {
  for (const std::string_view text : {"", "{", "[]", "nonsense", "{\"model\": 1}", "\xFF\xFE"}) {
    const Result<Tokenizer> tokenizer = Tokenizer::parse(text);
    ASSERT_FALSE(tokenizer.has_value()) << text;
    EXPECT_FALSE(tokenizer.error().message.empty());
  }
}

TEST(TokenizerFile, PartsThatWouldChangeIdsAreRefusedByName) {
  expect_error([](json::Object& file) { model_of(file).set("type", "Unigram"); }, ErrorKind::unsupported, "model.type");
  expect_error([](json::Object& file) { model_of(file).set("dropout", json::Value(0.1)); }, ErrorKind::unsupported, "dropout");
  expect_error([](json::Object& file) { model_of(file).set("end_of_word_suffix", "</w>"); }, ErrorKind::unsupported, "end_of_word_suffix");
  expect_error([](json::Object& file) { file.set("normalizer", json::Object{{"type", "NFC"}}); }, ErrorKind::unsupported, "normalizer");
  expect_error([](json::Object& file) { file.set("decoder", json::Object{{"type", "WordPiece"}}); }, ErrorKind::unsupported, "decoder");
  expect_error([](json::Object& file) { file.erase("pre_tokenizer"); }, ErrorKind::unsupported, "pre_tokenizer");
  expect_error([](json::Object& file) { file.find("pre_tokenizer")->as_object()->set("add_prefix_space", true); }, ErrorKind::unsupported,
               "add_prefix_space");
  expect_error([](json::Object& file) { (*file.find("added_tokens")->as_array())[0].as_object()->set("lstrip", true); },
               ErrorKind::unsupported, "lstrip");
}

TEST(TokenizerFile, UnknownPatternIsQuoted) {
  expect_error(
      [](json::Object& file) {
        const json::Object split{
            {"type", "Split"}, {"pattern", json::Object{{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}};
        const json::Object bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
        file.set("pre_tokenizer", json::Object{{"type", "Sequence"}, {"pretokenizers", json::Array{split, bytes}}});
      },
      ErrorKind::unsupported, "\\\\w+");
}

TEST(TokenizerFile, BrokenVocabulariesAreRefused) {
  const auto vocab = [](json::Object& file) -> json::Object& { return *model_of(file).find("vocab")->as_object(); };
  expect_error([](json::Object& file) { model_of(file).set("vocab", json::Array{}); }, ErrorKind::corrupt, "model.vocab");
  expect_error([&](json::Object& file) { vocab(file).set("x", -1); }, ErrorKind::corrupt, "'x'");
  expect_error([&](json::Object& file) { vocab(file).set("xy", json::Value(std::int64_t{1} << 40)); }, ErrorKind::corrupt, "'xy'");
  expect_error([&](json::Object& file) { vocab(file).set("xy", "1"); }, ErrorKind::corrupt, "'xy'");
  expect_error([&](json::Object& file) { vocab(file).set("xy", 97); }, ErrorKind::corrupt, "two tokens");
  expect_error([&](json::Object& file) { vocab(file).set("", 999); }, ErrorKind::corrupt, "empty");
  expect_error([&](json::Object& file) { vocab(file).erase("a"); }, ErrorKind::unsupported, "byte 97");
}

TEST(TokenizerFile, BrokenMergesAreRefusedWithTheirPlace) {
  const auto merges = [](json::Object& file) -> json::Array& { return *model_of(file).find("merges")->as_array(); };
  expect_error([](json::Object& file) { model_of(file).set("merges", "a b"); }, ErrorKind::corrupt, "model.merges");
  expect_error([&](json::Object& file) { merges(file)[1] = json::Value("abc"); }, ErrorKind::corrupt, "model.merges[1]");
  expect_error([&](json::Object& file) { merges(file)[1] = json::Value("x y"); }, ErrorKind::corrupt, "model.merges[1]");
  expect_error([&](json::Object& file) { merges(file)[0] = json::Value(json::Array{json::Value("a")}); }, ErrorKind::corrupt,
               "model.merges[0]");
  expect_error([&](json::Object& file) { merges(file)[0] = json::Value(7); }, ErrorKind::corrupt, "model.merges[0]");
}

TEST(TokenizerFile, BrokenAddedTokensAreRefused) {
  expect_error([](json::Object& file) { file.set("added_tokens", "none"); }, ErrorKind::corrupt, "added_tokens");
  expect_error([](json::Object& file) { (*file.find("added_tokens")->as_array())[0].as_object()->set("content", ""); }, ErrorKind::corrupt,
               "added token");
  expect_error([](json::Object& file) { (*file.find("added_tokens")->as_array())[0].as_object()->erase("id"); }, ErrorKind::corrupt,
               "added token");
}

TEST(TokenizerFile, HolesInAddedIdsAreClosedAsTheOfficialLoaderDoes) {
  json::Value file = small_file();
  json::Array& added = *file.as_object()->find("added_tokens")->as_array();
  added[0].as_object()->set("id", 900);
  added.push_back(json::Value(json::Object{{"id", 901}, {"content", "ab"}, {"special", false}}));
  added.push_back(json::Value(json::Object{{"id", 902}, {"content", "<s>"}, {"special", false}}));
  added.push_back(json::Value(json::Object{{"id", 903}, {"content", "<e>"}, {"special", false}}));
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json::to_text(file));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->find("<s>"), TokenId{258}) << "numbered after the model, its second entry ignored";
  EXPECT_EQ(tokenizer->find("</s>"), TokenId{259});
  EXPECT_EQ(tokenizer->find("ab"), TokenId{256}) << "a token of the model keeps its id";
  EXPECT_EQ(tokenizer->find("<e>"), TokenId{260});
  EXPECT_EQ(tokenizer->vocab_size(), 261);
}

TEST(TokenizerFile, AHoleInTheVocabularyThatGivesAnIdTwiceIsRefused) {
  // Added tokens are numbered from the count of the model's tokens, 259 here: the second of them gets the id of "bc".
  const auto add_behind_hole = [](json::Object& file) { model_of(file).find("vocab")->as_object()->set("bc", 260); };
  expect_error([&](json::Object& file) { add_behind_hole(file); }, ErrorKind::corrupt, "the two tokens 'bc' and '</s>'");
}

TEST(TokenizerFile, OverlayReplacesByIdAndFillsUpToTheModelsVocabulary) {
  const std::string overlay = R"({"added_tokens": [{"id": 128799, "content": "<｜System｜>", "special": null}]})";
  const Result<Tokenizer> tokenizer = Tokenizer::parse(testing::read_data("deepseek-tokenizer.json.gz"), overlay);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 129280);
  EXPECT_EQ(tokenizer->find("<｜System｜>"), TokenId{128799});
  EXPECT_EQ(tokenizer->find("<｜place▁holder▁no▁799｜>"), std::nullopt);
  EXPECT_EQ(tokenizer->find("<｜unused▁slot▁129279｜>"), TokenId{129279});
  EXPECT_TRUE(tokenizer->is_special(TokenId{129279}));
  EXPECT_FALSE(tokenizer->is_special(TokenId{128799}));
}

TEST(TokenizerFile, BrokenOverlaysAreRefused) {
  const std::string file = testing::read_data("nano-tokenizer.json.gz");
  EXPECT_FALSE(Tokenizer::parse(file, "[]").has_value());
  EXPECT_FALSE(Tokenizer::parse(file, R"({"added_tokens": 1})").has_value());
  EXPECT_FALSE(Tokenizer::parse(file, R"({"added_tokens": [{"id": -1, "content": "x"}]})").has_value());
}

TEST(TokenizerFile, EveryCutOfAFileIsRefused) {
  const std::string text = json::to_text(small_file());
  for (std::size_t size = 0; size < text.size(); size += 7) {
    EXPECT_FALSE(Tokenizer::parse(std::string_view(text).substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
