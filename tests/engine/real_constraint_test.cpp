// Constraints end to end with nano: the schemas of the shared corpus, at several temperatures, at once or behind some free text. Every
// finished reply is valid by a validator of its own, every cut one the beginning of something valid, and neither speculation nor a
// cached prefix changes a token.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "engine/harness.h"
#include "engine/load.h"
#include "support/golden_file.h"
#include "support/schema_validator.h"
#include "support/test_device.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;
using engine::FinishReason;
using engine::SpeculationMode;

const fs::path kNano = fs::path(DEEPINFER_MODELS) / "nano";
constexpr std::size_t kNumSchemas = 200;

struct Case {
  json::Value schema;
  std::shared_ptr<const grammar::CompiledGrammar> grammar;
};

/// The corpus is compressed; its lines, or nothing when it is not there.
std::string corpus_text() {
  const fs::path path = fs::path(DEEPINFER_SHARED) / "data/grammar/maskbench.jsonl.gz";
  std::string out;
  if (!fs::exists(path)) {
    return out;
  }
  FILE* pipe = popen(("gzip -dc '" + path.string() + "'").c_str(), "r");
  check(pipe != nullptr, "gzip can be started");
  std::array<char, 65536> buffer{};
  for (std::size_t count = 0; (count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    out.append(buffer.data(), count);
  }
  pclose(pipe);
  return out;
}

/// Schemas that the validator knows and that compile, spread over the corpus.
std::vector<Case> cases() {
  std::vector<Case> all;
  std::istringstream lines(corpus_text());
  for (std::string text; std::getline(lines, text);) {
    const Result<json::Value> line = json::parse(text);
    check(line.has_value(), "the corpus is JSON");
    const std::string& schema_text = *line->find("grammar")->as_string();
    Result<json::Value> schema = json::parse(schema_text);
    if (!schema || !knows_schema(*schema)) {
      continue;
    }
    grammar::CompileOptions options{.max_blanks = 1};
    auto compiled = grammar::compile({.kind = grammar::GrammarKind::json_schema, .text = schema_text, .options = std::move(options)});
    if (compiled) {
      all.push_back({.schema = *std::move(schema), .grammar = *std::move(compiled)});
    }
  }
  std::vector<Case> out;
  for (std::size_t i = 0; i < kNumSchemas && all.size() >= kNumSchemas; ++i) {
    out.push_back(std::move(all[i * all.size() / kNumSchemas]));
  }
  return out;
}

/// Short ones, and every fourth long enough to be found in the prefix cache.
std::vector<std::vector<TokenId>> prompts() {
  std::vector<std::vector<TokenId>> out;
  std::vector<std::vector<TokenId>> long_ones;
  const json::Value samples = read_json(kNano / "samples.json");
  for (const json::Value& sample : *samples.as_array()) {
    std::vector<TokenId> prompt;
    for (const std::int32_t id : integers(*sample.find("prompt_ids"))) {
      prompt.push_back({id});
    }
    (prompt.size() > 250 ? long_ones : out).push_back(std::move(prompt));
  }
  for (std::size_t i = 0; i < long_ones.size(); ++i) {
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(std::min(out.size(), 4 * i)), std::move(long_ones[i]));
  }
  return out;
}

class Nano {
 public:
  Nano(SpeculationMode mode, bool prefix_cache) : device_(test_device({})) {
    const engine::EngineOptions options{
        .max_requests = 16, .max_batched_tokens = 128, .max_model_len = 512, .prefix_cache = prefix_cache, .speculation = mode};
    auto loaded = engine::load_engine(kNano, options, *device_);
    check(loaded.has_value(), "nano loads");
    loaded_ = std::make_unique<engine::LoadedEngine>(*std::move(loaded));
  }

  std::vector<Reply> answer(const std::vector<engine::GenerationRequest>& requests) {
    std::vector<std::shared_ptr<Reply>> replies;
    for (const engine::GenerationRequest& request : requests) {
      replies.push_back(std::make_shared<Reply>());
      const auto id = loaded_->engine->submit(request, [reply = replies.back()](engine::Output&& output) { reply->take(output); });
      check(id.has_value(), "the request is accepted");
    }
    while (loaded_->engine->step()) {
    }
    std::vector<Reply> out;
    for (const auto& reply : replies) {
      out.push_back(std::move(*reply));
    }
    return out;
  }

  [[nodiscard]] const grammar::Vocabulary& vocabulary() const { return *loaded_->vocabulary; }
  [[nodiscard]] const engine::Engine& engine() const { return *loaded_->engine; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<engine::LoadedEngine> loaded_;
};

std::vector<engine::GenerationRequest> requests_for(const std::vector<Case>& all, Nano& nano) {
  std::vector<engine::GenerationRequest> out;
  const std::vector<std::vector<TokenId>> starts = prompts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    engine::GenerationRequest request{.prompt = starts[i % starts.size()], .max_tokens = 4};
    request.sampling = {.temperature = static_cast<double>(i % 3) * 0.6, .seed = i};
    out.push_back(std::move(request));
  }
  const std::vector<Reply> free = nano.answer(out);
  for (std::size_t i = 0; i < all.size(); ++i) {
    out[i].max_tokens = 48;
    out[i].constraint = engine::Constraint{.grammar = all[i].grammar};
    if (i % 2 == 1 && free[i].tokens.size() >= 3) {  // the same seed says the same until then
      out[i].constraint->trigger_ids = {free[i].tokens[1], free[i].tokens[2]};
    }
  }
  return out;
}

/// The text behind the trigger; nullopt when that never came.
std::optional<std::string> constrained_text(const engine::GenerationRequest& request, const Reply& reply,
                                            const grammar::Vocabulary& words) {
  const std::vector<TokenId>& trigger = request.constraint->trigger_ids;
  auto from = reply.tokens.begin();
  if (!trigger.empty()) {
    from = std::search(reply.tokens.begin(), reply.tokens.end(), trigger.begin(), trigger.end());
    if (from == reply.tokens.end()) {
      return std::nullopt;
    }
    from += static_cast<std::ptrdiff_t>(trigger.size());
  }
  std::string out;
  for (; from != reply.tokens.end(); ++from) {
    out += words.text(*from);
  }
  return out;
}

TEST(RealConstraint, EveryReplyFitsItsSchemaAndNeitherSpeculationNorPrefixesChangeIt) {
  const std::vector<Case> all = cases();
  if (all.empty()) {
    std::cout << "absent: the grammar corpus beside the repository\n";
    return;
  }
  Nano plain(SpeculationMode::off, true);
  const std::vector<engine::GenerationRequest> requests = requests_for(all, plain);
  const std::vector<Reply> replies = plain.answer(requests);
  int num_finished = 0;
  int num_begun = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(json::to_text(all[i].schema));
    const auto text = constrained_text(requests[i], replies[i], plain.vocabulary());
    ASSERT_TRUE(replies[i].finish->reason == FinishReason::stop || replies[i].finish->reason == FinishReason::length);
    if (!text) {
      continue;
    }
    ++num_begun;
    if (replies[i].finish->reason == FinishReason::stop) {
      ++num_finished;
      const Result<json::Value> value = json::parse(*text);
      ASSERT_TRUE(value.has_value()) << *text;
      EXPECT_TRUE(is_valid(all[i].schema, *value)) << *text;
    }
  }
  std::printf("%zu schemas, %d begun, %d finished\n", all.size(), num_begun, num_finished);
  EXPECT_GT(num_begun, static_cast<int>(kNumSchemas) * 3 / 4);
  EXPECT_GT(num_finished, static_cast<int>(kNumSchemas) / 5);
  Nano drafting(SpeculationMode::full, false);
  const std::vector<Reply> drafted = drafting.answer(requests);
  EXPECT_GT(plain.engine().stats().num_cached_tokens, 5000);
  EXPECT_EQ(drafting.engine().stats().num_cached_tokens, 0);
  EXPECT_GT(drafting.engine().stats().speculation.num_accepted, 1000);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(drafted[i].tokens, replies[i].tokens) << json::to_text(all[i].schema);
  }
}

}  // namespace
}  // namespace deepinfer::test
