// A served model whose engine, tokenizer and recipe are real and whose "weights" are scripts: the last user message names a script, and
// the forward function makes its tokens the only likely ones. The vocabulary is nano's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine_thread.h"
#include "grammar/vocabulary.h"
#include "server/served_model.h"

namespace deepinfer::server {

inline constexpr std::int32_t kScriptedContext = 2048;

/// A request "[script:NAME]" is answered by the script NAME.
struct Scripts {
  std::map<std::string, std::string> texts = {
      {"hello", "Hello! How can I help you today?"},
      {"think", "Let me see.\nIt is easy.</think>The answer is 42."},
      {"think_call",
       "I should look.\n</think>One moment.\n\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter "
       "name=\"days\" string=\"false\">[1,2.50]</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"city\" "
       "string=\"true\">Paris</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"},
      {"call",
       "I will look.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" "
       "string=\"true\">Paris</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"},
      {"stop", "one two STOP three four"},
      {"unicode", "Zażółć 你好 🙂🙃 done"},
  };
  /// Runs before every forward, on the engine thread: slows down, blocks or counts.
  std::function<void()> before_forward;
};

class ScriptedModel {
 public:
  ScriptedModel(tokenizer::Tokenizer tokenizer, Scripts scripts)
      : tokenizer_(std::move(tokenizer)), before_forward_(scripts.before_forward) {
    for (const auto& [name, text] : scripts.texts) {
      scripts_.emplace(name, tokenizer_.encode(text, tokenizer::AddedTokens::recognise));
    }
    assistant_ = tokenizer_.find("<｜Assistant｜>").value();
    fim_end_ = tokenizer_.find("<｜fim▁end｜>").value();
    endless_ = tokenizer_.encode(" la", tokenizer::AddedTokens::ignore);
  }

  std::span<const float> forward(std::span<const model::Chunk> chunks) {
    if (before_forward_) {
      before_forward_();
    }
    logits_.clear();
    for (const model::Chunk& chunk : chunks) {
      std::vector<TokenId>& history = histories_[chunk.slot];
      history.resize(static_cast<std::size_t>(chunk.first_position));
      history.insert(history.end(), chunk.tokens.begin(), chunk.tokens.end());
      for (std::ptrdiff_t behind = chunk.num_logit_rows - 1; behind >= 0; --behind) {
        append_row({history.begin(), history.end() - behind});
      }
    }
    return logits_;
  }

  void copy_state(SlotId from, SlotId to) { histories_[to] = histories_[from]; }

  static constexpr TokenId kEos{1};

 private:
  void append_row(const std::vector<TokenId>& history) {
    const auto vocab = static_cast<std::size_t>(tokenizer_.vocab_size());
    const std::string prompt = tokenizer_.decode(history, tokenizer::SpecialTokens::keep);
    const std::size_t mark = prompt.rfind("[script:");
    const std::string name = mark == std::string::npos ? "hello" : prompt.substr(mark + 8, prompt.find(']', mark) - mark - 8);
    const std::size_t num_generated = history.size() - prompt_size(history);
    const bool is_bad = name == "bad" && num_generated >= 3;
    const std::size_t begin = logits_.size();
    logits_.resize(begin + vocab, is_bad ? std::numeric_limits<float>::quiet_NaN() : -100.0F);
    if (!is_bad) {
      logits_[begin + static_cast<std::size_t>(next(name, num_generated).value)] = 100.0F;
    }
  }

  /// Tokens before the reply: up to the opener and its think token; without an opener up to the end of fill-in-the-middle or of the
  /// script's name, the form of plain prompts.
  std::size_t prompt_size(const std::vector<TokenId>& history) const {
    const auto size_up_to = [&history](auto last) { return static_cast<std::size_t>(history.rend() - last); };
    if (const auto opener = std::ranges::find(history.rbegin(), history.rend(), assistant_); opener != history.rend()) {
      return size_up_to(opener) + 1;
    }
    if (const auto fim = std::ranges::find(history.rbegin(), history.rend(), fim_end_); fim != history.rend()) {
      return size_up_to(fim);
    }
    const auto bracket =
        std::ranges::find_if(history.rbegin(), history.rend(), [this](TokenId id) { return tokenizer_.bytes(id).ends_with("]"); });
    return size_up_to(bracket);
  }

  TokenId next(const std::string& name, std::size_t num_generated) const {
    const auto script = scripts_.find(name);
    if (script == scripts_.end()) {  // "endless", "bad"
      return endless_[num_generated % endless_.size()];
    }
    return num_generated < script->second.size() ? script->second[num_generated] : kEos;
  }

  tokenizer::Tokenizer tokenizer_;
  std::function<void()> before_forward_;
  std::map<std::string, std::vector<TokenId>> scripts_;
  std::vector<TokenId> endless_;
  TokenId assistant_;
  TokenId fim_end_;
  std::map<SlotId, std::vector<TokenId>> histories_;
  std::vector<float> logits_;
};

struct ScriptedOptions {
  Scripts scripts = {};
  std::int32_t max_requests = 16;
  std::int32_t max_queue = 64;
  bool strict_official = false;
  bool has_structured_output = true;
  bool has_prefix_cache = false;  ///< and choices fork
};

inline const tokenizer::Tokenizer& nano_tokenizer() {
  static const tokenizer::Tokenizer tokenizer = [] {
    auto loaded = tokenizer::Tokenizer::load(DEEPINFER_MODELS "/nano/tokenizer.json");
    check(loaded.has_value(), "nano's tokenizer can be read");
    return *loaded;
  }();
  return tokenizer;
}

inline std::shared_ptr<const grammar::Vocabulary> nano_vocabulary() {
  static const auto vocabulary = std::make_shared<const grammar::Vocabulary>(grammar::make_vocabulary(nano_tokenizer()));
  return vocabulary;
}

inline std::shared_ptr<const ServedModel> scripted_model(ScriptedOptions options = {}) {
  auto model = std::make_shared<ScriptedModel>(nano_tokenizer(), std::move(options.scripts));
  engine::EngineParts parts{
      .model = engine::synchronous([model](std::span<const model::Chunk> chunks) { return model->forward(chunks); }),
      .token_bytes = [](TokenId id) { return nano_tokenizer().bytes(id); },
      .vocab_size = nano_tokenizer().vocab_size(),
      .eos = ScriptedModel::kEos,
      .geometry = {.positions_per_block = 128, .num_blocks = 1 + 32 * options.max_requests, .num_slots = 1 + options.max_requests},
      .vocabulary = nano_vocabulary()};
  if (options.has_prefix_cache) {
    parts.model.copy_state = [model](SlotId from, SlotId to) { model->copy_state(from, to); };
    parts.model.copy_block = [](BlockId, BlockId) {};  // the history of a slot is all there is
  }
  const engine::EngineOptions engine_options{
      .max_requests = options.max_requests, .max_batched_tokens = 256, .max_model_len = kScriptedContext, .max_queue = options.max_queue};
  auto thread = std::make_shared<engine::EngineThread>(std::make_unique<engine::Engine>(std::move(parts), engine_options));
  auto compiler = options.has_structured_output
                      ? std::make_shared<grammar::CompilePool>(nano_vocabulary(), grammar::CompilePoolOptions{.num_threads = 1})
                      : nullptr;
  return std::make_shared<const ServedModel>(ServedModel{.name = "nano",
                                                         .device = "scripted",
                                                         .context_length = kScriptedContext,
                                                         .strict_official = options.strict_official,
                                                         .convert = convert_options("nano"),
                                                         .tokenizer = nano_tokenizer(),
                                                         .engine = std::move(thread),
                                                         .compiler = std::move(compiler),
                                                         .constraints = *constraint_settings(nano_tokenizer(), ToolConstraint::structure)});
}

/// A Chat Completions body that asks for a script. `more` is further members, each with a leading comma.
inline std::string chat_body(const std::string& script, const std::string& more = "") {
  return R"({"model":"nano","messages":[{"role":"user","content":"[script:)" + script + R"(]"}],"thinking":{"type":"disabled"})" + more +
         "}";
}

/// Waits until `condition` holds; false after 10 s.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace deepinfer::server
