// Images from the body of each API to the reply, over the whole server with the tiny model, which has a vision tower; what is refused, in
// each API's form and before it costs anything; and that a model without vision says so.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "api_bench.h"
#include "backends/cpu/cpu_device.h"
#include "engine/load.h"
#include "recipe/base64.h"

namespace deepinfer::server {
namespace {

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kResponses = "/v1/responses";

std::string file(const std::string& name) {
  std::ifstream in(DEEPINFER_TEST_DATA "/recipe/images/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string data_url(const std::string& bytes) { return "data:image/png;base64," + recipe::encode_base64(bytes); }

const std::string& stripes() {
  static const std::string bytes = file("stripes.png");
  return bytes;
}
const std::string& waves() {
  static const std::string bytes = file("waves.png");
  return bytes;
}

struct OwnedEngine {
  std::unique_ptr<Device> device;
  engine::EngineThread thread;
};

/// The tiny model behind the server's surface, its context long enough for `max_model_len`.
std::shared_ptr<const ServedModel> tiny_model(std::int32_t max_batched_tokens = 256) {
  auto device = cpu::make_device({.num_threads = 2});
  auto loaded = engine::load_engine(DEEPINFER_TEST_DATA "/tiny",
                                    {.max_requests = 4, .max_batched_tokens = max_batched_tokens, .max_model_len = 768}, *device);
  check(loaded.has_value(), "the tiny model loads");
  auto model = std::make_shared<ServedModel>(ServedModel{.name = "tiny",
                                                         .device = "cpu",
                                                         .context_length = 768,
                                                         .convert = convert_options("tiny"),
                                                         .tokenizer = loaded->tokenizer,
                                                         .engine = nullptr});
  set_images(*model, loaded->config.vision, {loaded->config.image_token_id});
  const auto owner = std::shared_ptr<OwnedEngine>(new OwnedEngine{std::move(device), engine::EngineThread(std::move(loaded->engine))});
  model->engine = std::shared_ptr<engine::EngineThread>(owner, &owner->thread);
  return model;
}

/// Bodies of the three APIs that say the same.
std::string chat(const std::vector<std::string>& images, const std::string& text = "What is it?") {
  std::string parts = R"({"type":"text","text":")" + text + R"("})";
  for (const std::string& image : images) {
    parts += R"(,{"type":"image_url","image_url":{"url":")" + image + R"("}})";
  }
  return R"({"model":"tiny","messages":[{"role":"user","content":[)" + parts +
         R"(]}],"thinking":{"type":"disabled"},"temperature":0,"max_tokens":6,"ignore_eos":true})";
}
std::string messages(const std::string& source) {
  return R"({"model":"tiny","max_tokens":6,"temperature":0,"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},)"
         R"({"type":"image","source":)" +
         source + "}]}]}";
}
std::string base64_source(const std::string& bytes) {
  return R"({"type":"base64","media_type":"image/png","data":")" + recipe::encode_base64(bytes) + R"("})";
}
std::string responses(const std::string& url) {
  return R"({"model":"tiny","max_output_tokens":6,"temperature":0,"input":[{"role":"user","content":[{"type":"input_text","text":)"
         R"("What is it?"},{"type":"input_image","image_url":")" +
         url + R"("}]}]})";
}

std::int64_t number_at(const std::string& body, std::initializer_list<std::string_view> path) {
  const auto parsed = json::parse(body);
  const json::Value* value = parsed ? &*parsed : nullptr;
  for (const std::string_view name : path) {
    value = value == nullptr ? nullptr : value->find(name);
  }
  return value == nullptr || value->as_number() == nullptr ? -1 : value->as_number()->as_int64().value_or(-1);
}

std::string content_of(const std::string& body) {
  const auto parsed = json::parse(body);
  const json::Value* const choices = parsed ? parsed->find("choices") : nullptr;
  return choices == nullptr ? "" : json::to_text(*choices->as_array()->front().find("message")->find("content"));
}

class ImagesOverHttp : public ::testing::Test {
 protected:
  ApiBench bench_{{.served = tiny_model()}};

  void TearDown() override {
    EXPECT_TRUE(eventually([this] { return bench_.is_quiet(); }));
    EXPECT_TRUE(eventually([this] { return bench_.model->images->memory.used_bytes() == 0; })) << "no pixels stay behind";
  }
};

TEST_F(ImagesOverHttp, EveryApiTakesThemAndCountsTheirTokens) {
  const std::string url = data_url(stripes());
  const ClientResponse rendered = bench_.post("/render", chat({url}));
  ASSERT_EQ(rendered.status, 200) << rendered.body;
  const auto render = json::parse(rendered.body);
  const auto num_ids = static_cast<std::int64_t>(render->find("ids")->as_array()->size());
  const json::Array& range = *render->find("image_ranges")->as_array()->front().as_array();
  const std::int64_t first = *range[0].as_number()->as_int64();
  const std::int64_t end = *range[1].as_number()->as_int64();
  EXPECT_GT(end - first, 20);
  for (std::int64_t i = first; i < end; ++i) {
    EXPECT_EQ((*render->find("ids")->as_array())[static_cast<std::size_t>(i)].as_number()->as_int64(), 1023);
  }
  const ClientResponse reply = bench_.post(kChat, chat({url}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(number_at(reply.body, {"usage", "prompt_tokens"}), num_ids);
  const ClientResponse plain = bench_.post("/render", chat({}));
  const auto num_plain = static_cast<std::int64_t>(json::parse(plain.body)->find("ids")->as_array()->size());
  EXPECT_GT(num_ids, num_plain + (end - first));

  const ClientResponse message = bench_.post(kMessages, messages(base64_source(stripes())));
  ASSERT_EQ(message.status, 200) << message.body;
  const ClientResponse counted = bench_.post("/v1/messages/count_tokens", messages(base64_source(stripes())));
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(number_at(counted.body, {"input_tokens"}), number_at(message.body, {"usage", "input_tokens"}) +
                                                           number_at(message.body, {"usage", "cache_read_input_tokens"}));
  EXPECT_GT(number_at(counted.body, {"input_tokens"}), end - first);

  const ClientResponse response = bench_.post(kResponses, responses(url));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_GT(number_at(response.body, {"usage", "input_tokens"}), end - first);
  EXPECT_NE(bench_.get("/v1/models").body.find("\"vision\""), std::string::npos);
}

TEST_F(ImagesOverHttp, TheReplyDependsOnTheImageAndComesFromTheCacheTheSecondTime) {
  const std::string long_text(200, 'x');
  const ClientResponse cold = bench_.post(kChat, chat({data_url(stripes()), data_url(waves())}, long_text));
  ASSERT_EQ(cold.status, 200) << cold.body;
  const ClientResponse again = bench_.post(kChat, chat({data_url(stripes()), data_url(waves())}, long_text));
  EXPECT_EQ(content_of(again.body), content_of(cold.body));
  const ClientResponse other = bench_.post(kChat, chat({data_url(waves()), data_url(stripes())}, long_text));
  ASSERT_EQ(other.status, 200) << other.body;
  EXPECT_NE(content_of(other.body), content_of(cold.body));
  EXPECT_EQ(number_at(again.body, {"usage", "prompt_cache_hit_tokens"}), 128) << again.body;
}

TEST_F(ImagesOverHttp, AStreamAndChoicesTakeThem) {
  std::string body = chat({data_url(stripes())});
  body.pop_back();
  const ClientResponse streamed = bench_.post(kChat, body + R"(,"stream":true})");
  ASSERT_EQ(streamed.status, 200) << streamed.body;
  EXPECT_EQ(events_of(streamed.body).back(), "[DONE]");
  const ClientResponse two = bench_.post(kChat, body + R"(,"n":2})");
  ASSERT_EQ(two.status, 200) << two.body;
  EXPECT_EQ(json::parse(two.body)->find("choices")->as_array()->size(), 2U);
}

/// A PNG whose header claims sides of 2^15 pixels.
std::string huge_png() {
  std::string png = file("small.png");
  png.replace(16, 8, std::string("\x00\x00\x80\x00\x00\x00\x80\x00", 8));
  return png;
}

TEST_F(ImagesOverHttp, WhatIsNoGoodImageIsRefusedInTheFormOfEachApi) {
  struct Bad {
    std::string name;
    std::string url;
    std::string said;
  };
  const std::string unsupported = "You have uploaded an unsupported image";
  const std::vector<Bad> cases = {
      {"no image", data_url("BM this is no png"), unsupported},
      {"empty", "data:image/png;base64,", unsupported},
      {"no base64", "data:image/png;base64,%%%%", "Invalid base64 data"},
      {"cut short", data_url(stripes().substr(0, stripes().size() / 2)), unsupported},
      {"a bomb", data_url(huge_png()), unsupported},
      {"a link", "https://example.com/cat.png", "does not fetch images from links"},
      {"a link into the house", "http://169.254.169.254/latest", "does not fetch images from links"},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.name);
    const ClientResponse as_chat = bench_.post(kChat, chat({bad.url}));
    EXPECT_EQ(as_chat.status, 400);
    EXPECT_NE(as_chat.body.find(bad.said), std::string::npos) << as_chat.body;
    EXPECT_NE(as_chat.body.find("\"error\""), std::string::npos);
    const ClientResponse as_response = bench_.post(kResponses, responses(bad.url));
    EXPECT_EQ(as_response.status, 400);
    EXPECT_NE(as_response.body.find(bad.said), std::string::npos) << as_response.body;
  }
  for (const std::string& source : {base64_source("BM"), base64_source(huge_png())}) {
    for (const char* const path : {kMessages, "/v1/messages/count_tokens"}) {
      const ClientResponse response = bench_.post(path, messages(source));
      EXPECT_EQ(response.status, 400);
      EXPECT_NE(response.body.find(unsupported), std::string::npos) << response.body;
      EXPECT_NE(response.body.find("invalid_request_error"), std::string::npos) << response.body;
    }
  }
  const ClientResponse link = bench_.post(kMessages, messages(R"({"type":"url","url":"https://example.com/cat.png"})"));
  EXPECT_EQ(link.status, 400);
  EXPECT_NE(link.body.find("does not fetch images from links"), std::string::npos) << link.body;
}

TEST_F(ImagesOverHttp, TooManyAndTooLargeAreRefused) {
  const ClientResponse many = bench_.post(kChat, chat(std::vector<std::string>(21, data_url(file("small.png")))));
  EXPECT_EQ(many.status, 400);
  EXPECT_NE(many.body.find("Too many images: max 20 images per request"), std::string::npos) << many.body;
  // 20 images do not fit into the context: the first that goes beyond it ends the work.
  const ClientResponse longer = bench_.post(kChat, chat(std::vector<std::string>(20, data_url(stripes()))));
  EXPECT_EQ(longer.status, 400);
  EXPECT_NE(longer.body.find("maximum context length"), std::string::npos) << longer.body;
  const ClientResponse heavy = bench_.post(kChat, chat({"data:image/png;base64," + std::string(std::size_t{29} << 20, 'A')}));
  EXPECT_EQ(heavy.status, 400);
  EXPECT_NE(heavy.body.find("image file size exceeds limit 20 MB"), std::string::npos) << heavy.body.substr(0, 300);
  EXPECT_EQ(bench_.post(kChat, chat({data_url(file("small.png"))})).status, 200) << "and the server goes on";
}

TEST(ImagesOfAServer, OneThatNeverFitsIntoAStepIsRefusedWithTheFlagToChange) {
  ApiBench bench({.served = tiny_model(40)});
  const ClientResponse response = bench.post(kChat, chat({data_url(waves())}));
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("--max-batched-tokens"), std::string::npos) << response.body;
}

TEST(ImagesOfAServer, PixelsOfAllRequestsTogetherAreBounded) {
  const auto pixels = [] { return engine::make_image_content(14, 14, std::vector<std::uint8_t>(14 * 14 * 3)); };
  ImageMemory memory(1000);
  auto first = memory.hold(pixels());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(memory.used_bytes(), 588U);
  EXPECT_EQ(memory.hold(pixels()), nullptr);
  EXPECT_EQ(memory.used_bytes(), 588U);
  const auto copy = first;
  first.reset();
  EXPECT_EQ(memory.used_bytes(), 588U) << "counted as long as anybody has it";
}

TEST(ImagesOfAServer, AModelWithoutVisionSaysWhy) {
  const ApiBench bench;
  const std::string why = "the model nano does not take images: its configuration has no vision_config";
  const auto for_nano = [](std::string body) { return body.replace(body.find("tiny"), 4, "nano"); };
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {kChat, for_nano(chat({data_url(stripes())}))},
           {"/render", for_nano(chat({data_url(stripes())}))},
           {kResponses, for_nano(responses(data_url(stripes())))},
           {kMessages, for_nano(messages(base64_source(stripes())))},
           {"/v1/messages/count_tokens", for_nano(messages(base64_source(stripes())))}}) {
    const ClientResponse response = bench.post(path, body);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find(why), std::string::npos) << path << " " << response.body;
  }
  EXPECT_EQ(bench.get("/v1/models").body.find("\"vision\""), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::server
