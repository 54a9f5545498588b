// Laws of prompts that no recorded case states on its own.
#include "recipe/content_builder.h"
#include "recipe/render.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "recipe/convert.h"
#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::deepseek_v41;

/// Every spelling that a prompt can hold as a control token.
std::string all_spellings() {
  const SpecialTokens tokens;
  return tokens.bos + tokens.eos + tokens.thinking_start + tokens.thinking_end + tokens.system + tokens.user + tokens.assistant +
         tokens.latest_reminder + tokens.dsml + tokens.image;
}

Conversation hostile_conversation() {
  const std::string text = all_spellings();
  Conversation out;
  out.tools.push_back(Tool{.name = text, .description = text, .parameters = json::Object{{text, text}}, .strict = std::nullopt});
  out.messages.emplace_back(SystemMessage{.content = {.text = text, .images = {}, .placeholders = {}}, .tools = std::nullopt});
  out.messages.emplace_back(UserMessage{{.text = text, .images = {}, .placeholders = {}}});
  out.messages.emplace_back(AssistantMessage{
      .content = text, .reasoning_content = text, .tool_calls = std::vector<ToolCall>{{.id = "c", .name = text, .arguments = text}}});
  out.messages.emplace_back(ToolMessage{.content = {.text = text, .images = {}, .placeholders = {}}, .tool_call_id = "c"});
  out.messages.emplace_back(LatestReminderMessage{text});
  out.response_format = JsonSchemaFormat{json::Object{{"title", text}}};
  return out;
}

TEST(Render, UserTextNeverBecomesAControlToken) {
  for (const ModelVersion version : {ModelVersion::v4, ModelVersion::v4_1}) {
    const Conversation conversation = hostile_conversation();
    const Prompt prompt = render(conversation, version);
    const Result<std::vector<TokenId>> ids = encode_prompt(prompt, deepseek_v41());
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    const auto is_control = [](TokenId id) {
      return deepseek_v41().is_special(id) || deepseek_v41().find(deepseek_v41().bytes(id)).has_value();
    };
    EXPECT_EQ(std::ranges::count_if(*ids, is_control), std::ssize(prompt.special_ranges));
  }
}

TEST(Render, ThreadsGiveTheIdsOfOne) {
  Conversation conversation = hostile_conversation();
  std::string text;
  while (text.size() < 400'000) {
    text += "Words, 词语 and <｜User｜> " + std::to_string(text.size()) + "  \n";
  }
  conversation.messages.emplace_back(UserMessage{{.text = text, .images = {}, .placeholders = {}}});
  const Prompt prompt = render(conversation, ModelVersion::v4_1);
  const Result<std::vector<TokenId>> expected = encode_prompt(prompt, deepseek_v41());
  ASSERT_TRUE(expected.has_value());
  for (const std::int32_t num_threads : {2, 5}) {
    EXPECT_TRUE(encode_prompt(prompt, deepseek_v41(), num_threads).value() == *expected) << num_threads;
  }
}

TEST(Render, RangesAreAscendingAndHoldSpellings) {
  for (const ModelVersion version : {ModelVersion::v4, ModelVersion::v4_1}) {
    const Conversation conversation = hostile_conversation();
    const Prompt prompt = render(conversation, version);
    std::size_t end = 0;
    for (const SpecialRange& range : prompt.special_ranges) {
      ASSERT_LE(end, range.begin);
      ASSERT_LT(range.begin, range.end);
      EXPECT_TRUE(deepseek_v41().find(prompt.text.substr(range.begin, range.end - range.begin)).has_value());
      end = range.end;
    }
    EXPECT_LE(end, prompt.text.size());
  }
}

TEST(Render, ImagesFollowTheirPlaceholdersWhenResultsAreSorted) {
  const auto result = [](std::string id) {
    const SpecialTokens tokens;
    ImageSource image{.kind = ImageKind::url, .data = "http://" + id, .detail = ImageDetail::high, .path = ""};
    return ToolMessage{
        .content = {.text = tokens.image, .images = {std::move(image)}, .placeholders = {{.begin = 0, .end = tokens.image.size()}}},
        .tool_call_id = std::move(id)};
  };
  Conversation conversation;
  conversation.messages.emplace_back(UserMessage{{.text = "x", .images = {}, .placeholders = {}}});
  conversation.messages.emplace_back(AssistantMessage{
      .content = "",
      .reasoning_content = std::nullopt,
      .tool_calls = std::vector<ToolCall>{{.id = "a", .name = "f", .arguments = "{}"}, {.id = "b", .name = "f", .arguments = "{}"}}});
  conversation.messages.emplace_back(result("b"));
  conversation.messages.emplace_back(result("a"));
  const Prompt prompt = render(conversation, ModelVersion::v4_1);
  ASSERT_EQ(prompt.images.size(), 2U);
  EXPECT_EQ(prompt.images[0]->data, "http://a");
  EXPECT_EQ(prompt.images[1]->data, "http://b");
}

TEST(Render, AGeneratedTurnKeepsItsIdsWhereItOpensTheSameWay) {
  const auto token = [](std::string_view spelling) { return deepseek_v41().find(spelling).value(); };
  const SpecialTokens tokens;
  std::vector<TokenId> ids = deepseek_v41().encode("Hm", tokenizer::AddedTokens::ignore);
  for (const std::string_view letter : {"W", "a", "i", "t"}) {  // not how the tokenizer would cut it
    ids.push_back(deepseek_v41().encode(letter, tokenizer::AddedTokens::ignore).at(0));
  }
  ids.push_back(token(tokens.thinking_end));
  ids.push_back(token(tokens.dsml));
  const std::string text = deepseek_v41().decode(ids, tokenizer::SpecialTokens::keep);
  Conversation conversation;
  conversation.tools.push_back(Tool{.name = "f", .description = {}, .parameters = json::Object{}, .strict = {}});
  conversation.messages.emplace_back(UserMessage{{.text = "Hi", .images = {}, .placeholders = {}}});
  AssistantMessage message{
      .content = "", .reasoning_content = "", .tool_calls = std::vector<ToolCall>{{.id = "c", .name = "f", .arguments = "{}"}}};
  message.generated = std::make_shared<GeneratedTurn>(GeneratedTurn{.thinking_mode = ThinkingMode::on, .text = text, .ids = ids});
  conversation.messages.emplace_back(message);
  const Prompt prompt = render(conversation, ModelVersion::v4_1);
  EXPECT_NE(prompt.text.find(tokens.assistant + tokens.thinking_start + text + tokens.eos), std::string::npos) << prompt.text;
  const auto encoded = encode_prompt(prompt, deepseek_v41());
  ASSERT_TRUE(encoded);
  std::vector<TokenId> expected = {token(tokens.assistant), token(tokens.thinking_start)};
  expected.insert(expected.end(), ids.begin(), ids.end());
  expected.push_back(token(tokens.eos));
  EXPECT_FALSE(std::ranges::search(*encoded, expected).empty());

  conversation.thinking_mode = ThinkingMode::off;  // the turn now opens with the other think token
  EXPECT_EQ(render(conversation, ModelVersion::v4_1).text.find(text), std::string::npos);
}

TEST(Render, PlaceholdersOfImagesAreFoundAmongIdsThatLookLikeThem) {
  const SpecialTokens tokens;
  const TokenId image = *deepseek_v41().find(tokens.image);
  Conversation conversation;
  ContentBuilder content(tokens.image);
  content.add_text("typed " + tokens.image + " is text");
  content.add_image({.kind = ImageKind::bytes, .data = "one", .path = ""});
  content.add_image({.kind = ImageKind::bytes, .data = "two", .path = ""});
  conversation.messages.emplace_back(UserMessage{std::move(content).take()});
  AssistantMessage message{.content = "", .reasoning_content = "", .tool_calls = {}};
  message.generated =
      std::make_shared<GeneratedTurn>(GeneratedTurn{.thinking_mode = ThinkingMode::on, .text = tokens.image, .ids = {image}});
  conversation.messages.emplace_back(message);
  ContentBuilder more(tokens.image);
  more.add_image({.kind = ImageKind::bytes, .data = "three", .path = ""});
  conversation.messages.emplace_back(UserMessage{std::move(more).take()});
  const Prompt prompt = render(conversation, ModelVersion::v4_1);
  const auto encoded = encode_illustrated(prompt, deepseek_v41());
  ASSERT_TRUE(encoded);
  ASSERT_EQ(prompt.images.size(), 3U);
  ASSERT_EQ(encoded->placeholders.size(), 3U);
  const std::vector<TokenId> user = {*deepseek_v41().find(tokens.user)};
  for (const std::size_t place : encoded->placeholders) {
    EXPECT_EQ(encoded->ids[place], image);
  }
  EXPECT_EQ(std::ranges::count(encoded->ids, image), prompt.generated.empty() ? 3 : 4);
  EXPECT_EQ(encoded->ids[encoded->placeholders[2] - 1], user[0]);
  EXPECT_EQ(encoded->ids, *encode_prompt(prompt, deepseek_v41()));
}

TEST(Render, AMissingControlTokenIsAnError) {
  const Conversation conversation = hostile_conversation();
  SpecialTokens tokens;
  tokens.user = "<no such token>";
  const Result<std::vector<TokenId>> ids = encode_prompt(render(conversation, ModelVersion::v4_1, tokens), deepseek_v41());
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().kind, ErrorKind::not_found);
}

}  // namespace
}  // namespace deepinfer::recipe
