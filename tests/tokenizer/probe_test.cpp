#include "tokenizer/probe.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tokenizer/test_data.h"

namespace deepinfer::tokenizer {
namespace {

json::Value answer(std::string_view line) {
  static const EngramVocabulary engram = compress_vocabulary(testing::nano());
  const std::string out = answer_probe_line(testing::nano(), engram, line);
  EXPECT_EQ(out.find('\n'), std::string::npos);
  return *json::parse(out);
}

std::string error_kind(std::string_view line) {
  const json::Value out = answer(line);
  const json::Value* error = out.find("error");
  return error == nullptr ? "" : *error->find("kind")->as_string();
}

TEST(TokenizerProbe, EncodesWithAndWithoutAddedTokens) {
  const json::Value special = answer(R"({"op":"encode","text":"<｜User｜>","special":true})");
  ASSERT_EQ(special.find("ids")->as_array()->size(), 1U);
  const json::Value plain = answer(R"({"op":"encode","text":"<｜User｜>","special":false})");
  EXPECT_GT(plain.find("ids")->as_array()->size(), 1U);
}

TEST(TokenizerProbe, DecodesWhatItEncoded) {
  const json::Value ids = answer(R"({"op":"encode","text":"Grüße, 世界 😀","special":true})");
  json::Object request{{"op", "decode"}, {"ids", *ids.find("ids")}, {"skip_special", false}};
  EXPECT_EQ(*answer(json::to_text(request)).find("text")->as_string(), "Grüße, 世界 😀");
}

TEST(TokenizerProbe, SkipsSpecialTokensOnRequest) {
  EXPECT_EQ(*answer(R"({"op":"decode","ids":[0,1],"skip_special":true})").find("text")->as_string(), "");
  EXPECT_EQ(*answer(R"({"op":"decode","ids":[0]})").find("text")->as_string(), "<｜begin▁of▁sentence｜>");
}

TEST(TokenizerProbe, StreamGivesOnePiecePerIdAndTheRest) {
  const json::Value ids = answer(R"({"op":"encode","text":"a😀","special":true})");
  json::Object request{{"op", "stream"}, {"ids", *ids.find("ids")}};
  const json::Value out = answer(json::to_text(request));
  const json::Array& pieces = *out.find("pieces")->as_array();
  EXPECT_EQ(pieces.size(), ids.find("ids")->as_array()->size());
  std::string joined;
  for (const json::Value& piece : pieces) {
    joined += *piece.as_string();
  }
  EXPECT_EQ(joined, "a😀");
}

TEST(TokenizerProbe, CompressesForEngram) {
  EXPECT_EQ(json::to_text(answer(R"({"op":"engram","ids":[0,1,2]})")), R"({"compressed":[0,1,2]})");
}

TEST(TokenizerProbe, FailuresAreAnswers) {
  EXPECT_EQ(error_kind("not json"), "corrupt");
  for (const std::string_view line :
       {R"({})", R"({"op":"fly"})", R"({"op":"encode"})", R"({"op":"encode","text":1})", R"({"op":"encode","text":"a","special":1})",
        R"({"op":"decode","ids":"1"})", R"({"op":"decode","ids":[8192]})", R"({"op":"stream","ids":[-1]})",
        R"({"op":"engram","ids":[1.5]})", R"({"op":"decode","ids":[1],"skip_special":"no"})"}) {
    EXPECT_EQ(error_kind(line), "invalid_argument") << line;
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
