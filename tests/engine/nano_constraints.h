// Schemas of the shared corpus and nano, for tests of constraints with the real model.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "engine/harness.h"
#include "engine/load.h"
#include "support/golden_file.h"
#include "support/schema_validator.h"
#include "support/test_device.h"

namespace deepinfer::test {

inline const std::filesystem::path kNano = std::filesystem::path(DEEPINFER_MODELS) / "nano";

struct Case {
  json::Value schema;
  std::shared_ptr<const grammar::CompiledGrammar> grammar;
};

/// The corpus is compressed; its lines, or nothing when it is not there. It lies beside the repository, or where the environment says.
inline std::string corpus_text() {
  const char* elsewhere = std::getenv("DEEPINFER_SHARED");
  const std::filesystem::path path = std::filesystem::path(elsewhere != nullptr ? elsewhere : DEEPINFER_SHARED) / "data/grammar/maskbench.jsonl.gz";
  std::string out;
  if (!std::filesystem::exists(path)) {
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

/// So many schemas that the validator knows and that compile, spread over the corpus.
inline std::vector<Case> cases(std::size_t count) {
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
  for (std::size_t i = 0; i < count && all.size() >= count; ++i) {
    out.push_back(std::move(all[i * all.size() / count]));
  }
  return out;
}

enum class Thinking { off, on };

/// Of nano's samples: short ones, and every fourth long enough to be found in the prefix cache.
inline std::vector<std::vector<TokenId>> prompts(std::optional<Thinking> wanted = std::nullopt) {
  std::vector<std::vector<TokenId>> out;
  std::vector<std::vector<TokenId>> long_ones;
  const json::Value samples = read_json(kNano / "samples.json");
  for (const json::Value& sample : *samples.as_array()) {
    if (wanted && *sample.find("thinking")->as_bool() != (*wanted == Thinking::on)) {
      continue;
    }
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
  Nano(engine::SpeculationMode mode, bool prefix_cache, bool jump_ahead = true) : device_(test_device({})) {
    const engine::EngineOptions options{.max_requests = 16,
                                        .max_batched_tokens = 128,
                                        .max_model_len = 512,
                                        .max_queue = 10'000,
                                        .prefix_cache = prefix_cache,
                                        .speculation = mode,
                                        .jump_ahead = jump_ahead};
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
  [[nodiscard]] std::shared_ptr<const grammar::Vocabulary> vocabulary_pointer() const { return loaded_->vocabulary; }
  [[nodiscard]] const engine::Engine& engine() const { return *loaded_->engine; }
  [[nodiscard]] TokenId token(std::string_view spelling) const {
    const auto id = loaded_->tokenizer.find(spelling);
    check(id.has_value(), "the vocabulary has the token");
    return *id;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<engine::LoadedEngine> loaded_;
};

}  // namespace deepinfer::test
