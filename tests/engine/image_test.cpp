// Requests with images: the laws with spans inside, names of cached blocks that take in what an image shows, one encoding per image, and
// what is refused. The model of a few lines, then the tiny one.
#include <gtest/gtest.h>

#include "engine/harness.h"
#include "engine/load.h"
#include "support/test_device.h"

namespace deepinfer::test {
namespace {

constexpr TokenId kImageToken{3};

std::shared_ptr<const engine::ImageContent> random_image(std::mt19937_64& random, std::int32_t width, std::int32_t height) {
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(width * height * 3));
  std::ranges::generate(rgb, [&] { return static_cast<std::uint8_t>(random()); });
  return engine::make_image_content(width, height, std::move(rgb));
}

void append_text(engine::GenerationRequest& request, std::mt19937_64& random, std::size_t count) {
  const auto text = random_prompt(random, count);
  request.prompt.insert(request.prompt.end(), text.begin(), text.end());
}

/// `num_tokens` of the fake vision configuration: a pixel a token.
void append_image(engine::GenerationRequest& request, std::shared_ptr<const engine::ImageContent> content) {
  const std::int32_t num_tokens = content->height * (content->width + 1) + 2;
  request.images.push_back(
      {.first_position = static_cast<std::int32_t>(request.prompt.size()), .num_tokens = num_tokens, .content = std::move(content)});
  request.prompt.insert(request.prompt.end(), static_cast<std::size_t>(num_tokens), kImageToken);
}

/// Texts and up to three images of up to 14 tokens.
engine::GenerationRequest random_illustrated(std::mt19937_64& random) {
  engine::GenerationRequest out{.sampling = random_sampling(random), .max_tokens = 1 + static_cast<std::int32_t>(random() % 12)};
  append_text(out, random, 1 + random() % 10);
  for (std::size_t i = random() % 4; i > 0; --i) {
    const auto width = static_cast<std::int32_t>(1 + random() % 3);
    append_image(out, random_image(random, width, static_cast<std::int32_t>(1 + random() % 3)));
    append_text(out, random, random() % 8);
  }
  return out;
}

Reply run_alone_in(Harness& harness, const engine::GenerationRequest& request) {
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  return harness.reply(id);
}

TEST(Images, CompanyChunksPreemptionCacheAndOverlapChangeNothing) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    std::mt19937_64 random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Harness harness({.max_requests = 5,
                     .max_batched_tokens = 20,  // images of up to 14 tokens beside four other rows
                     .num_blocks = 60,          // too few for five long requests: some are preempted
                     .num_extra_slots = 3,
                     .overlap_depth = seed % 2 == 0 ? 1 : 0,
                     .prefix_cache = seed > 2,
                     .max_drafts = static_cast<std::int32_t>(seed % 3 * 2)});
    std::vector<std::pair<engine::GenerationRequest, RequestId>> requests;
    for (int i = 0; i < 40; ++i) {
      // Every other request repeats one that came before, some with more behind it.
      auto request = i % 2 == 1 ? requests[random() % requests.size()].first : random_illustrated(random);
      if (i % 4 == 1 && request.prompt.size() < 80) {
        append_text(request, random, 3);
      }
      requests.emplace_back(request, harness.submit(request));
      for (std::size_t steps = random() % 4; steps > 0; --steps) {
        harness.engine.step();
      }
    }
    harness.run_to_the_end();
    for (const auto& [request, id] : requests) {
      ASSERT_EQ(harness.reply(id).tokens, alone(request).tokens);
    }
    if (seed > 2) {
      EXPECT_GT(harness.engine.stats().num_cached_tokens, 0);
    }
  }
}

TEST(Images, DifferentImagesNeverShareABlock) {
  std::mt19937_64 random(7);
  Harness harness({.num_extra_slots = 4, .prefix_cache = true});
  engine::GenerationRequest first{.sampling = {.temperature = 0}, .max_tokens = 3, .ignore_eos = true};
  append_text(first, random, 10);
  append_image(first, random_image(random, 3, 3));  // 14 tokens, in the blocks of positions 8 to 23
  append_text(first, random, 9);
  engine::GenerationRequest other = first;
  other.images[0].content = random_image(random, 3, 3);
  ASSERT_EQ(first.prompt, other.prompt);

  const Reply cold = run_alone_in(harness, first);
  EXPECT_EQ(harness.model.num_encoded, 1);
  for (int turn = 0; turn < 3; ++turn) {
    const Reply reply = run_alone_in(harness, other);
    EXPECT_EQ(reply.tokens, alone(other).tokens);
    EXPECT_LE(turn == 0 ? reply.num_cached_tokens : 0, 8) << "blocks before the image only";
  }
  EXPECT_EQ(harness.model.num_encoded, 2) << "the second and third turn find the whole image in the cache";
  const Reply again = run_alone_in(harness, first);
  EXPECT_EQ(again.tokens, cold.tokens);
  EXPECT_EQ(again.num_cached_tokens, 32);
  EXPECT_EQ(harness.model.num_encoded, 2);

  engine::GenerationRequest text = first;  // the same ids as text
  text.images.clear();
  EXPECT_EQ(run_alone_in(harness, text).tokens, alone(text).tokens);
}

TEST(Images, AnImageIsEncodedOnceForAllRequestsThatHaveIt) {
  std::mt19937_64 random(8);
  Harness harness({.max_requests = 4});
  engine::GenerationRequest request{.sampling = {.temperature = 1.0}, .max_tokens = 20, .ignore_eos = true};
  append_image(request, random_image(random, 2, 2));
  append_text(request, random, 3);
  for (std::uint64_t i = 0; i < 4; ++i) {
    request.sampling.seed = i;
    harness.submit(request);
  }
  harness.run_to_the_end();
  EXPECT_EQ(harness.model.num_encoded, 1);
  harness.submit(request);
  harness.run_to_the_end();
  EXPECT_EQ(harness.model.num_encoded, 2) << "rows go with the last request that has the image";
}

TEST(Images, APreemptedRequestKeepsItsRows) {
  std::mt19937_64 random(9);
  Harness harness({.max_requests = 2, .max_batched_tokens = 64, .max_model_len = 56, .num_blocks = 14});
  engine::GenerationRequest older{.sampling = {.temperature = 0}, .max_tokens = 40, .ignore_eos = true};
  append_text(older, random, 4);
  engine::GenerationRequest younger{.sampling = {.temperature = 0}, .max_tokens = 40, .ignore_eos = true};
  append_image(younger, random_image(random, 2, 2));
  append_text(younger, random, 2);
  harness.submit(older);
  const RequestId id = harness.submit(younger);
  harness.run_to_the_end();
  EXPECT_GT(harness.engine.stats().num_preemptions, 0);
  EXPECT_EQ(harness.model.num_encoded, 1);
  EXPECT_EQ(harness.reply(id).tokens, alone(younger).tokens);
}

TEST(Images, ChoicesOfOnePromptShareTheImage) {
  std::mt19937_64 random(10);
  Harness harness({.max_requests = 4});
  engine::GenerationRequest request{.sampling = {.temperature = 1.0}, .max_tokens = 9, .ignore_eos = true};
  append_text(request, random, 2);
  append_image(request, random_image(random, 3, 2));
  append_text(request, random, 2);
  std::vector<std::shared_ptr<Reply>> replies;
  std::vector<engine::Choice> choices;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    auto reply = std::make_shared<Reply>();
    replies.push_back(reply);
    choices.push_back({.seed = seed, .sink = [reply](engine::Output&& output) { reply->take(output); }});
  }
  ASSERT_TRUE(harness.engine.submit_choices(request, std::move(choices)).has_value());
  harness.run_to_the_end();
  EXPECT_EQ(harness.model.num_encoded, 1);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    request.sampling.seed = seed;
    EXPECT_EQ(replies[seed]->tokens, alone(request).tokens);
  }
}

TEST(Images, OtherRequestsGoOnWhileOneIsEncoded) {
  std::mt19937_64 random(15);
  for (const std::int32_t overlap_depth : {0, 1}) {
    Harness harness({.max_requests = 2, .overlap_depth = overlap_depth});
    harness.model.num_image_pieces = 10;
    engine::GenerationRequest text{.sampling = {.temperature = 0}, .max_tokens = 30, .ignore_eos = true};
    append_text(text, random, 4);
    engine::GenerationRequest shown{.sampling = {.temperature = 0}, .max_tokens = 2, .ignore_eos = true};
    append_text(shown, random, 3);
    append_image(shown, random_image(random, 2, 2));
    const RequestId first = harness.submit(text);
    harness.engine.step();
    const RequestId second = harness.submit(shown);
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(harness.engine.step());
    }
    EXPECT_GE(harness.reply(first).tokens.size(), 7U);
    EXPECT_TRUE(harness.reply(second).tokens.empty());
    harness.run_to_the_end();
    EXPECT_EQ(harness.reply(first).tokens, alone(text).tokens);
    EXPECT_EQ(harness.reply(second).tokens, alone(shown).tokens);
  }
}

TEST(Images, ACancelledRequestLeavesItsImageUnfinishedAndTheNextBeginsItsOwn) {
  std::mt19937_64 random(16);
  Harness harness({.max_requests = 2});
  harness.model.num_image_pieces = 5;
  engine::GenerationRequest first{.sampling = {.temperature = 0}, .max_tokens = 3, .ignore_eos = true};
  append_image(first, random_image(random, 2, 2));
  engine::GenerationRequest second = first;
  second.images[0].content = random_image(random, 2, 2);
  const RequestId cancelled = harness.submit(first);
  harness.engine.step();
  harness.engine.step();
  const RequestId kept = harness.submit(second);
  harness.engine.cancel(cancelled);
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(cancelled).finish->reason, engine::FinishReason::cancelled);
  EXPECT_EQ(harness.reply(kept).tokens, alone(second).tokens);
}

TEST(Images, APrefixHitThatEndsWhereAnImageBeginsHasItsState) {
  std::mt19937_64 random(17);
  for (const std::int32_t overlap_depth : {0, 1}) {
    Harness harness({.max_requests = 2, .num_extra_slots = 3, .overlap_depth = overlap_depth, .prefix_cache = true});
    engine::GenerationRequest request{.sampling = {.temperature = 0}, .max_tokens = 4, .ignore_eos = true};
    append_text(request, random, 8);  // two blocks, then the image
    engine::GenerationRequest before = request;
    append_text(before, random, 1);
    append_image(request, random_image(random, 2, 2));
    run_alone_in(harness, before);
    const Reply reply = run_alone_in(harness, request);
    EXPECT_EQ(reply.num_cached_tokens, 8);
    EXPECT_EQ(reply.tokens, alone(request).tokens);
  }
}

std::string refusal_of(Harness& harness, const engine::GenerationRequest& request) {
  const auto id = harness.engine.submit(request, [](engine::Output&&) {});
  return id ? "" : id.error().message;
}

TEST(Images, WhatCannotBeComputedIsRefusedAtSubmission) {
  std::mt19937_64 random(11);
  Harness harness({.max_requests = 8, .max_batched_tokens = 20});
  engine::GenerationRequest request;
  append_text(request, random, 2);
  append_image(request, random_image(random, 3, 3));
  EXPECT_EQ(refusal_of(harness, request),
            "image 0 of the prompt takes 14 tokens, but a step of this engine has room for images of 13; start it with a larger "
            "--max-batched-tokens or send a smaller image");
  engine::GenerationRequest large;
  append_image(large, random_image(random, 20, 2));
  EXPECT_EQ(refusal_of(harness, large), "image 0 of the prompt has 20x2 pixels and takes 44 tokens; the model sees at most 40");
  engine::GenerationRequest apart = request;
  apart.images[0] = {.first_position = 1, .num_tokens = 20, .content = random_image(random, 1, 1)};
  EXPECT_EQ(refusal_of(harness, apart), "image 0 of the prompt takes positions from 1 to 20; images follow each other inside the prompt");
  apart.images[0] = {.first_position = 1, .num_tokens = 5, .content = random_image(random, 1, 1)};
  EXPECT_EQ(refusal_of(harness, apart), "image 0 of the prompt has 1x1 pixels and takes 4 tokens, not 5");
  apart.images[0].content = nullptr;
  EXPECT_EQ(refusal_of(harness, apart), "image 0 of the prompt has no pixels");
  engine::GenerationRequest scored;
  append_text(scored, random, 2);
  append_image(scored, random_image(random, 1, 1));
  scored.sampling.want_logprobs = true;
  scored.sampling.want_prompt_logprobs = true;
  EXPECT_EQ(refusal_of(harness, scored),
            "log probabilities of a prompt with images are not computed; leave the images or the log probabilities out");
}

TEST(Images, AModelWithoutVisionRefusesThem) {
  std::mt19937_64 random(12);
  const kvcache::CacheGeometry geometry{.positions_per_block = 4, .num_blocks = 100, .num_slots = 5};
  FakeModel model(geometry, kVocab);
  engine::EngineParts parts = fake_parts(model, geometry);
  parts.vision.reset();
  engine::Engine engine(std::move(parts), {.max_requests = 2, .max_batched_tokens = 64, .max_model_len = 200, .prefix_cache = false});
  engine::GenerationRequest request;
  append_image(request, random_image(random, 1, 1));
  const auto id = engine.submit(request, [](engine::Output&&) {});
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(id.error().message, "this model takes no images: its configuration has no vision_config");
}

// --- the tiny model -----------------------------------------------------------------------------------------------

/// Pixels of 84x70: 2 rows of 2 tokens; 84x98: 3 rows.
engine::GenerationRequest tiny_request(std::mt19937_64& random, std::int32_t image_token) {
  engine::GenerationRequest out{.sampling = {.temperature = 0}, .max_tokens = 6, .ignore_eos = true};
  const auto text = [&](std::size_t count) {
    while (count-- > 0) {
      out.prompt.push_back({static_cast<std::int32_t>(random() % 1000)});
    }
  };
  text(100 + random() % 40);
  for (const std::int32_t height : {70, 98}) {
    const std::int32_t num_tokens = (height + 41) / 42 * 3 + 2;
    out.images.push_back({.first_position = static_cast<std::int32_t>(out.prompt.size()),
                          .num_tokens = num_tokens,
                          .content = random_image(random, 84, height)});
    out.prompt.insert(out.prompt.end(), static_cast<std::size_t>(num_tokens), TokenId{image_token});
    text(20 + random() % 80);
  }
  return out;
}

struct TinyEngine {
  std::unique_ptr<Device> device = test_device({.num_threads = 2});
  engine::LoadedEngine loaded;

  explicit TinyEngine(const engine::EngineOptions& options) : loaded(load(options, *device)) {}

  static engine::LoadedEngine load(const engine::EngineOptions& options, Device& device) {
    auto result = engine::load_engine(std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny", options, device);
    check(result.has_value(), "the tiny model loads");
    return std::move(*result);
  }
  std::shared_ptr<Reply> submit(const engine::GenerationRequest& request) {
    auto reply = std::make_shared<Reply>();
    check(loaded.engine->submit(request, [reply](engine::Output&& output) { reply->take(output); }).has_value(), "it is accepted");
    return reply;
  }
  void run() {
    while (loaded.engine->step()) {
    }
  }
};

TEST(ImagesOfTheTinyModel, BatchesChunksAndPrefixHitsGiveTheTokensOfARequestAlone) {
  std::mt19937_64 random(13);
  TinyEngine busy({.max_requests = 4, .max_batched_tokens = 48, .max_model_len = 512});
  const std::int32_t image_token = busy.loaded.config.image_token_id;
  std::vector<engine::GenerationRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(tiny_request(random, image_token));
  }
  requests.push_back(requests[0]);
  requests[4].images[1].content = random_image(random, 84, 98);  // another second image
  std::vector<std::shared_ptr<Reply>> replies;
  for (int round = 0; round < 3; ++round) {
    for (const auto& request : requests) {
      replies.push_back(busy.submit(request));
    }
    busy.run();
  }
  EXPECT_GT(busy.loaded.engine->stats().num_cached_tokens, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    TinyEngine alone({.max_requests = 1, .max_batched_tokens = 512, .max_model_len = 512, .prefix_cache = false});
    const auto want = alone.submit(requests[i]);
    alone.run();
    for (std::size_t round = 0; round < 3; ++round) {
      EXPECT_EQ(replies[round * requests.size() + i]->tokens, want->tokens) << "request " << i << ", round " << round;
    }
  }
}

TEST(ImagesOfTheTinyModel, BoundedReplayTakesThemToo) {
  std::mt19937_64 random(14);
  TinyEngine engine({.max_requests = 2, .max_batched_tokens = 64, .max_model_len = 512, .replay = engine::Replay::bounded});
  const auto request = tiny_request(random, engine.loaded.config.image_token_id);
  for (int turn = 0; turn < 2; ++turn) {
    const auto reply = engine.submit(request);
    engine.run();
    EXPECT_EQ(reply->tokens.size(), 6U);
    EXPECT_EQ(reply->finish->reason, engine::FinishReason::length);
  }
  EXPECT_GT(engine.loaded.engine->stats().num_cached_tokens, 0);
}

}  // namespace
}  // namespace deepinfer::test
