// The reply to POST /v1/completions: prompts times n choices, as chunks or as one body. Not here: what the body says (text_body.h).
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "recipe/reply_events.h"
#include "server/completion.h"
#include "server/engine_stream.h"
#include "server/prepared_request.h"
#include "server/text_body.h"
#include "tokenizer/detokenizer.h"

namespace deepinfer::server {

class TextCompletion {
 public:
  using State = Completion::State;

  /// Submits every choice; the seed of choice i is the request's plus i. Refused: what read_text_body refuses, a full queue.
  static std::expected<std::unique_ptr<TextCompletion>, Refusal> start(const std::shared_ptr<const ServedModel>& model,
                                                                       const CompletionRequest& request, const Wake& wake);
  TextCompletion(const TextCompletion&) = delete;
  TextCompletion& operator=(const TextCompletion&) = delete;

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] bool wants_stream() const { return request_.stream; }
  State advance(const Completion::EventSink& sink);
  [[nodiscard]] State state() const { return state_; }
  void cancel();
  [[nodiscard]] std::string response() const;
  [[nodiscard]] const Refusal& failure() const { return failure_; }
  /// As the model saw them, one after the other.
  [[nodiscard]] std::string prompt_text() const;
  [[nodiscard]] CompletionStatistics statistics() const;

 private:
  struct Choice {
    explicit Choice(const ServedModel& model) : detokenizer(model.tokenizer) {}

    std::unique_ptr<EngineStream> stream;  ///< empty: nothing was to be generated
    tokenizer::Detokenizer detokenizer;
    std::string text;    ///< all of it when not streamed; else what the next chunk shows
    json::Array tokens;  ///< these four: parts of `logprobs`
    json::Array token_logprobs;
    json::Array top_logprobs;
    json::Array text_offsets;
    std::size_t num_characters = 0;  ///< of the text in earlier chunks and in `text`
    std::size_t num_unscored = 0;    ///< tokens of the prompt whose log probabilities are still to come; nothing is told before them
    std::string finish_reason;       ///< empty: goes on
    std::uint64_t num_tokens = 0;
    std::uint64_t num_cached = 0;  ///< of its prompt
    bool is_told = false;          ///< its last chunk was given
  };

  TextCompletion(std::shared_ptr<const ServedModel> model, TextRequest request);
  std::expected<void, Refusal> add_choices(const TextPrompt& prompt, const Wake& wake);
  void begin_echo(Choice& choice, const TextPrompt& prompt) const;
  [[nodiscard]] bool take(Choice& choice, const engine::Output& output);
  void add_text(Choice& choice, const engine::TokenOutput& token) const;
  void end(Choice& choice, const engine::Finish& finish) const;
  void tell(std::size_t index, const Completion::EventSink& sink);
  void tell_usage(const Completion::EventSink& sink) const;
  [[nodiscard]] json::Object chunk_head() const;
  [[nodiscard]] json::Object choice_entry(std::size_t index) const;
  [[nodiscard]] json::Object usage() const;
  void fail_with(int status, std::string message);

  std::shared_ptr<const ServedModel> model_;
  TextRequest request_;
  std::string id_;
  std::int64_t created_ = 0;
  std::vector<Choice> choices_;
  State state_ = State::running;
  Refusal failure_;
  std::uint64_t prompt_tokens_ = 0;
  AdmissionReport admission_;  ///< of the first choice that began
  TimePoint started_;
  TimePoint first_token_;
  TimePoint last_token_;
};

}  // namespace deepinfer::server
