// An engine over the fake model, with what came out of it per request.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/fake_model.h"
#include "grammar/compile.h"
#include "grammar/vocabulary.h"

namespace deepinfer::test {

inline constexpr std::int32_t kVocab = 64;
inline constexpr TokenId kEos{1};

/// The bytes of a token of the fake vocabulary: "a" … "z", then pairs.
inline std::string_view fake_bytes(TokenId id) {
  static const std::vector<std::string> table = [] {
    std::vector<std::string> out;
    for (int i = 0; i < kVocab; ++i) {
      const std::string letter(1, static_cast<char>('a' + i % 26));
      out.push_back(i < 26 ? letter : letter + static_cast<char>('a' + i % 7));
    }
    return out;
  }();
  return table.at(static_cast<std::size_t>(id.value));
}

/// The fake vocabulary for constraints; ids 0 and 1 are control tokens.
inline std::shared_ptr<const grammar::Vocabulary> fake_vocabulary() {
  static const auto vocabulary = [] {
    std::vector<grammar::VocabularyToken> tokens;
    for (std::int32_t i = 0; i < kVocab; ++i) {
      tokens.push_back({.bytes = std::string(fake_bytes({i})), .is_control = i < 2});
    }
    return std::make_shared<const grammar::Vocabulary>(std::move(tokens), kVocab);
  }();
  return vocabulary;
}

/// A text in tokens of the fake vocabulary, pairs where there are some.
inline std::vector<TokenId> fake_split(std::string_view text) {
  std::vector<TokenId> out;
  while (!text.empty()) {
    TokenId longest{-1};
    for (std::int32_t i = 2; i < kVocab; ++i) {
      longest = text.starts_with(fake_bytes({i})) ? TokenId{i} : longest;  // pairs come behind letters
    }
    if (longest.value < 0) {
      break;
    }
    out.push_back(longest);
    text.remove_prefix(fake_bytes(longest).size());
  }
  return out;
}

/// A constraint by regular expression.
inline engine::Constraint regex_constraint(std::string_view pattern) {
  auto compiled = grammar::compile({.kind = grammar::GrammarKind::regex, .text = pattern});
  check(compiled.has_value(), "the pattern compiles");
  return {.grammar = std::move(*compiled)};
}

/// Everything a request got.
struct Reply {
  std::vector<TokenId> tokens;
  std::vector<engine::TokenOutput> outputs;
  std::vector<engine::TokenOutput> prompt;
  std::optional<engine::Finish> finish;
  int num_outputs = 0;
  std::int32_t num_cached_tokens = 0;
  scheduler::PrefixMiss prefix_miss = scheduler::PrefixMiss::none;
  std::int32_t first_prefix_miss = 0;

  void take(const engine::Output& output) {
    check(!finish, "nothing comes after the finish");
    ++num_outputs;
    check(output.prompt.empty() || tokens.empty(), "the prompt comes first");
    prompt.insert(prompt.end(), output.prompt.begin(), output.prompt.end());
    for (const engine::TokenOutput& token : output.tokens) {
      tokens.push_back(token.token);
      outputs.push_back(token);
    }
    finish = output.finish;
    num_cached_tokens = output.num_cached_tokens;
    prefix_miss = output.prefix_miss;
    first_prefix_miss = output.first_prefix_miss;
  }
  std::string text() const {
    std::string out;
    for (const TokenId token : tokens) {
      out += fake_bytes(token);
    }
    return out + (finish ? finish->text_before_stop : "");
  }
};

struct HarnessOptions {
  std::int32_t max_requests = 16;
  std::int32_t max_batched_tokens = 64;
  std::int32_t max_model_len = 200;
  std::int32_t max_queue = 100;
  std::int32_t num_blocks = 1000;
  std::int32_t positions_per_block = 4;
  std::int32_t num_extra_slots = 0;
  std::int32_t overlap_depth = 0;
  std::size_t swap_memory_bytes = 0;
  bool prefix_cache = false;
  bool has_tiers = false;
  std::size_t tier_memory_bytes = 0;
  std::filesystem::path tier_directory = {};  ///< empty: no disk
  std::int32_t max_drafts = 0;
  engine::SpeculationMode speculation = engine::SpeculationMode::full;
  engine::VerificationRule verification_rule = engine::VerificationRule::coupled;
  bool jump_ahead = true;
  bool draws_tokens = true;  ///< the model, where it can; else the engine
};

/// A patch is a pixel and a token.
inline model::VisionConfig fake_vision() {
  return {.num_hidden_layers = 1,
          .hidden_size = 16,
          .num_attention_heads = 1,
          .intermediate_size = 1,
          .patch_size = 1,
          .rope_theta = 1,
          .downsample_ratio = 1,
          .max_image_tokens = 40,
          .min_pixels = 0,
          .max_wh_ratio = {}};
}

inline engine::EngineParts fake_parts(FakeModel& model, kvcache::CacheGeometry geometry) {
  engine::EngineParts parts{.model = engine::synchronous([&model](std::span<const model::Chunk> chunks) { return model.forward(chunks); }),
                            .token_bytes = fake_bytes,
                            .vocab_size = kVocab,
                            .eos = kEos,
                            .num_previous_tokens = FakeModel::kLookback,
                            .geometry = geometry,
                            .vocabulary = fake_vocabulary(),
                            .forced_tokens = fake_split};
  parts.model.fault = [&model] { return std::string_view(model.fault); };
  parts.model.copy_state = [&model](SlotId from, SlotId to) { model.copy_state(from, to); };
  parts.model.draft = [&model](std::span<const model::DraftStart> starts, std::int32_t num_drafts, model::PickDrafts& pick) {
    return model.draft(starts, num_drafts, pick);
  };
  parts.model.images = {.begin = [&model](const model::ImagePixels& image) { model.begin_image(image); },
                        .advance = [&model] { return model.advance_image(); }};
  parts.vision = fake_vision();
  parts.model.copy_block = [&model](BlockId from, BlockId to) {
    std::ranges::copy(model.block_memory(from), model.block_memory(to).begin());
  };
  return parts;
}

/// The time that a FakeClock elsewhere shows.
class BorrowedClock final : public Clock {
 public:
  explicit BorrowedClock(const Clock& lent) : lent_(lent) {}
  [[nodiscard]] TimePoint now() const override { return lent_.now(); }

 private:
  const Clock& lent_;
};

inline engine::CacheCalls fake_cache_calls(FakeModel& model) {
  const auto copy = [](std::span<const std::byte> from, std::span<std::byte> to) {
    std::ranges::copy(from, to.begin());
    return true;
  };
  return {.block_bytes = model.block_memory({}).size(),
          .state_bytes = model.state_memory({}).size(),
          .read_block = [&model, copy](BlockId block, std::span<std::byte> to) { return copy(model.block_memory(block), to); },
          .write_block = [&model, copy](BlockId block, std::span<const std::byte> from) { copy(from, model.block_memory(block)); },
          .read_state = [&model, copy](SlotId slot, std::span<std::byte> to) { return copy(model.state_memory(slot), to); },
          .write_state = [&model, copy](SlotId slot, std::span<const std::byte> from) { copy(from, model.state_memory(slot)); }};
}

inline std::unique_ptr<engine::PrefixTiers> fake_tiers(FakeModel& model, const HarnessOptions& options) {
  if (!options.has_tiers) {
    return nullptr;
  }
  std::optional<engine::DiskTier> disk;
  if (!options.tier_directory.empty()) {
    auto opened = engine::DiskTier::open(options.tier_directory, "fake", 1 << 20);
    check(opened.has_value(), "the folder for prefixes can be made");
    disk = std::move(*opened);
  }
  return std::make_unique<engine::PrefixTiers>(fake_cache_calls(model), engine::PrefixStore(options.tier_memory_bytes, std::move(disk)),
                                               engine::PrefixTiers::Policy{});
}

inline engine::EngineParts fake_parts_of(FakeModel& model, kvcache::CacheGeometry geometry, const HarnessOptions& options,
                                         const Clock& clock) {
  engine::EngineParts parts = fake_parts(model, geometry);
  parts.clock = std::make_unique<BorrowedClock>(clock);
  parts.tiers = fake_tiers(model, options);
  parts.swap = fake_cache_calls(model);
  if (options.draws_tokens) {
    parts.model.draw = [&model](std::span<const model::RowDraw> rows) { model.draw(rows); };
    parts.model.wait = [&model] { return model.drawn_rows(); };
    parts.model.draft_drawn = [&model](std::span<const model::DraftStart> starts, std::int32_t num_drafts, std::span<const TokenDraw> draws) {
      return model.draft_drawn(starts, num_drafts, draws);
    };
  }
  return parts;
}

class Harness {
 public:
  explicit Harness(const HarnessOptions& options = {})
      : geometry_{.positions_per_block = options.positions_per_block,
                  .num_blocks = options.num_blocks + 1,
                  .num_slots = options.max_requests + options.num_extra_slots + 1},
        model(geometry_, kVocab),
        engine(fake_parts_of(model, geometry_, options, clock), {.max_requests = options.max_requests,
                                                                 .max_batched_tokens = options.max_batched_tokens,
                                                                 .max_model_len = options.max_model_len,
                                                                 .max_queue = options.max_queue,
                                                                 .prefix_cache = options.prefix_cache,
                                                                 .swap_memory_bytes = options.swap_memory_bytes,
                                                                 .speculation = options.speculation,
                                                                 .verification_rule = options.verification_rule,
                                                                 .max_drafts = options.max_drafts,
                                                                 .jump_ahead = options.jump_ahead,
                                                                 .overlap_depth = options.overlap_depth}) {}

  RequestId submit(const engine::GenerationRequest& request) {
    auto reply = std::make_shared<Reply>();
    const auto id = engine.submit(request, [reply](engine::Output&& output) { reply->take(output); });
    check(id.has_value(), "the request is accepted");
    replies[id->value] = std::move(reply);
    return *id;
  }

  const Reply& reply(RequestId id) const { return *replies.at(id.value); }

  void run_to_the_end() {
    int num_steps = 0;
    while (engine.has_work()) {
      check(engine.step(), "an engine with work has something to do");
      check(++num_steps < 100'000, "every request ends");
    }
    check(engine.stats().swap.num_bytes == 0, "nothing is kept of requests that are over");
    check(engine.stats().num_blocks_used == 0 && engine.stats().num_slots_used == 0, "everything came back");
  }

 private:
  kvcache::CacheGeometry geometry_;

 public:
  FakeClock clock;
  FakeModel model;
  engine::Engine engine;
  std::map<std::uint64_t, std::shared_ptr<Reply>> replies;
};

inline std::vector<TokenId> random_prompt(std::mt19937_64& random, std::size_t size) {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < size; ++i) {
    out.push_back({static_cast<std::int32_t>(2 + random() % (kVocab - 2))});
  }
  return out;
}

inline engine::SamplingParams random_sampling(std::mt19937_64& random) {
  engine::SamplingParams out{.temperature = static_cast<double>(random() % 4) * 0.5,
                             .top_p = random() % 2 == 0 ? 1.0 : 0.8,
                             .top_k = random() % 2 == 0 ? -1 : 10,
                             .min_p = random() % 2 == 0 ? 0.0 : 0.02,
                             .seed = random()};
  if (random() % 2 == 0) {
    out.adjustments = {.repetition_penalty = 1.1F, .presence_penalty = 0.3F, .frequency_penalty = 0.2F, .bias = {{TokenId{7}, 1.5F}}};
  }
  return out;
}

inline engine::GenerationRequest random_request(std::mt19937_64& random, std::int32_t max_prompt, std::int32_t max_tokens) {
  return {.prompt = random_prompt(random, 1 + random() % static_cast<std::uint64_t>(max_prompt)),
          .sampling = random_sampling(random),
          .max_tokens = 1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(max_tokens)),
          .ignore_eos = random() % 3 == 0};
}

/// What the request gives with nobody beside it, the whole prompt in one chunk, blocks without end, tokens drawn by the engine.
inline Reply alone(const engine::GenerationRequest& request) {
  Harness harness({.max_requests = 1, .max_batched_tokens = 1000, .draws_tokens = false});
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  return harness.reply(id);
}

}  // namespace deepinfer::test
