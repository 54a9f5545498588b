#include "server/text_completion.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "server/http_message.h"

namespace deepinfer::server {
namespace {

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// Bytes of a token that are no text by themselves are shown as \xHH, as in Chat Completions.
std::string token_text(const tokenizer::Tokenizer& tokenizer, TokenId token) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  const std::string_view bytes = tokenizer.bytes(token);
  if (tokenizer.is_text(token)) {
    return std::string(bytes);
  }
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.append("\\x").push_back(kHexDigits[byte >> 4]);
    out.push_back(kHexDigits[byte & 15]);
  }
  return out;
}

}  // namespace

TextCompletion::TextCompletion(std::shared_ptr<const ServedModel> model, TextRequest request)
    : model_(std::move(model)),
      request_(std::move(request)),
      id_("cmpl-" + sane_request_id({})),
      created_(unix_time()),
      started_(SteadyClock().now()) {}

std::expected<std::unique_ptr<TextCompletion>, Refusal> TextCompletion::start(const std::shared_ptr<const ServedModel>& model,
                                                                              const CompletionRequest& request, const Wake& wake) {
  auto read = read_text_body(*model, request.body);
  if (!read) {
    return std::unexpected(std::move(read.error()));
  }
  auto out = std::unique_ptr<TextCompletion>(new TextCompletion(model, std::move(*read)));
  const TextRequest& wanted = out->request_;
  for (const TextPrompt& prompt : wanted.prompts) {
    out->prompt_tokens_ += prompt.ids.size();
    if (auto added = out->add_choices(prompt, wake); !added) {
      return std::unexpected(std::move(added.error()));
    }
  }
  if (wanted.max_tokens == 0) {
    wake();  // everything is there already
  }
  return out;
}

/// The choices of one prompt, which is computed once for all of them unless each has to show its log probabilities. Without max_tokens one
/// token is generated and not shown: it ends the scoring of the prompt.
std::expected<void, Refusal> TextCompletion::add_choices(const TextPrompt& prompt, const Wake& wake) {
  const bool is_scored = request_.extras.sampling.want_prompt_logprobs && prompt.ids.size() > 1;
  const bool generates = request_.max_tokens > 0;
  const auto num_choices = static_cast<std::size_t>(request_.extras.num_choices);
  const std::size_t num_together = is_scored ? 1 : num_choices;
  for (std::size_t first = 0; first < num_choices; first += num_together) {
    std::vector<std::unique_ptr<EngineStream>> streams(num_together);
    if (generates || is_scored) {
      engine::GenerationRequest generation{.prompt = prompt.ids,
                                           .sampling = request_.extras.sampling,
                                           .max_tokens = static_cast<std::int32_t>(std::max(request_.max_tokens, 1U)),
                                           .ignore_eos = request_.extras.ignore_eos || !generates,
                                           .stop_strings = generates ? request_.stop : std::vector<std::string>{},
                                           .priority = request_.extras.priority,
                                           .time_limit = request_.extras.time_limit,
                                           .cache_salt = request_.extras.cache_salt};
      std::vector<std::uint64_t> seeds(num_together);
      std::iota(seeds.begin(), seeds.end(), request_.seed + choices_.size());
      auto submitted = EngineStream::submit_choices(model_->engine, std::move(generation), seeds, wake);
      if (!submitted) {
        return std::unexpected(refusal(recipe::Api::chat, status_of(submitted.error().kind), submitted.error().message));
      }
      streams = std::move(*submitted);
    }
    for (std::unique_ptr<EngineStream>& stream : streams) {
      Choice choice(*model_);
      if (request_.echo) {
        begin_echo(choice, prompt);
      }
      if (!stream) {
        choice.finish_reason = "length";
      }
      choice.stream = std::move(stream);
      choices_.push_back(std::move(choice));
    }
  }
  return {};
}

/// Puts the prompt in front. Its first token has a log probability only when another one is implied before it.
void TextCompletion::begin_echo(Choice& choice, const TextPrompt& prompt) const {
  if (!request_.extras.sampling.want_prompt_logprobs) {
    choice.text = prompt.text;
    choice.num_characters = num_characters(prompt.text);
    return;
  }
  choice.num_unscored = prompt.ids.size() - 1;
  if (prompt.num_implied == 0) {
    choice.tokens.emplace_back(token_text(model_->tokenizer, prompt.ids.front()));
    choice.token_logprobs.emplace_back(nullptr);
    choice.top_logprobs.emplace_back(nullptr);
    choice.text_offsets.emplace_back(0);
    choice.detokenizer.append(prompt.ids.front(), choice.text);
    choice.num_characters = num_characters(choice.text);
  }
}

TextCompletion::State TextCompletion::advance(const Completion::EventSink& sink) {
  if (state_ != State::running) {
    return state_;
  }
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    const bool is_new = choice.stream == nullptr || (request_.echo && choice.num_tokens == 0);
    bool has_news = is_new && !choice.is_told;
    if (choice.stream) {
      for (const engine::Output& output : choice.stream->take()) {
        has_news = true;
        if (!take(choice, output)) {
          return state_;
        }
      }
    }
    if (request_.stream && has_news && !choice.is_told) {
      tell(i, sink);
    }
  }
  if (std::ranges::all_of(choices_, [](const Choice& choice) { return !choice.finish_reason.empty(); })) {
    state_ = State::finished;
    if (request_.stream && request_.include_usage) {
      tell_usage(sink);
    }
  }
  return state_;
}

/// False when the request has failed.
bool TextCompletion::take(Choice& choice, const engine::Output& output) {
  if (!output.tokens.empty()) {
    last_token_ = SteadyClock().now();
    if (first_token_ == TimePoint{}) {
      first_token_ = last_token_;
      admission_ = admission_report(output);
    }
  }
  choice.num_cached = std::max(choice.num_cached, static_cast<std::uint64_t>(output.num_cached_tokens));
  for (const engine::TokenOutput& token : output.prompt) {
    --choice.num_unscored;
    add_text(choice, token);
  }
  for (const engine::TokenOutput& token : output.tokens) {
    if (request_.max_tokens > 0) {
      ++choice.num_tokens;
      add_text(choice, token);
    }
  }
  if (!output.finish) {
    return true;
  }
  switch (output.finish->reason) {
    case engine::FinishReason::cancelled:
      fail_with(503, "the request was cancelled");
      return false;
    case engine::FinishReason::timed_out:
      fail_with(504, "the request did not end within its time limit");
      return false;
    case engine::FinishReason::failed:
      fail_with(500, output.finish->message);
      return false;
    default:
      end(choice, *output.finish);
      return true;
  }
}

/// A token of the prompt or of the reply, with its log probability when that is wanted.
void TextCompletion::add_text(Choice& choice, const engine::TokenOutput& token) const {
  if (request_.logprobs) {
    choice.tokens.emplace_back(token_text(model_->tokenizer, token.token));
    choice.token_logprobs.emplace_back(static_cast<double>(token.logprob));
    json::Object alternatives;
    for (const auto& [alternative, logprob] : token.top_logprobs) {
      alternatives.set(token_text(model_->tokenizer, alternative), static_cast<double>(logprob));
    }
    choice.top_logprobs.emplace_back(std::move(alternatives));
    choice.text_offsets.emplace_back(static_cast<std::uint64_t>(choice.num_characters));
  }
  const std::size_t before = choice.text.size();
  choice.detokenizer.append(token.token, choice.text);
  choice.num_characters += num_characters(std::string_view(choice.text).substr(before));
}

void TextCompletion::end(Choice& choice, const engine::Finish& finish) const {
  choice.detokenizer.append_bytes(finish.text_before_stop, choice.text);
  choice.detokenizer.finish(choice.text);
  choice.finish_reason = finish.reason == engine::FinishReason::length ? "length" : "stop";
}

json::Object TextCompletion::chunk_head() const {
  return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", request_.model}};
}

json::Object TextCompletion::choice_entry(std::size_t index) const {
  const Choice& choice = choices_[index];
  json::Object out{{"text", choice.text}, {"index", static_cast<std::uint64_t>(index)}, {"logprobs", nullptr}};
  if (request_.logprobs) {
    out.set("logprobs", json::Object{{"tokens", choice.tokens},
                                     {"token_logprobs", choice.token_logprobs},
                                     {"top_logprobs", choice.top_logprobs},
                                     {"text_offset", choice.text_offsets}});
  }
  out.set("finish_reason", choice.finish_reason.empty() ? json::Value() : json::Value(choice.finish_reason));
  return out;
}

void TextCompletion::tell(std::size_t index, const Completion::EventSink& sink) {
  Choice& choice = choices_[index];
  const bool has_news = !choice.text.empty() || !choice.tokens.empty() || !choice.finish_reason.empty();
  if (!has_news || choice.num_unscored > 0) {
    return;
  }
  choice.is_told = !choice.finish_reason.empty();
  json::Object chunk = chunk_head();
  chunk.set("choices", json::Array{choice_entry(index)});
  choice.text.clear();
  for (json::Array* const shown : {&choice.tokens, &choice.token_logprobs, &choice.top_logprobs, &choice.text_offsets}) {
    shown->clear();
  }
  if (request_.include_usage) {
    chunk.set("usage", nullptr);
  }
  const std::string text = json::to_text(chunk);
  sink({.name = {}, .data = text});
}

void TextCompletion::tell_usage(const Completion::EventSink& sink) const {
  json::Object chunk = chunk_head();
  chunk.set("choices", json::Array{});
  chunk.set("usage", usage());
  const std::string text = json::to_text(chunk);
  sink({.name = {}, .data = text});
}

json::Object TextCompletion::usage() const {
  const CompletionStatistics counts = statistics();
  return {{"prompt_tokens", counts.prompt_tokens},
          {"completion_tokens", counts.completion_tokens},
          {"total_tokens", counts.prompt_tokens + counts.completion_tokens},
          {"prompt_tokens_details", json::Object{{"cached_tokens", counts.cached_tokens}}}};
}

std::string TextCompletion::response() const {
  json::Object body = chunk_head();
  json::Array entries;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    entries.emplace_back(choice_entry(i));
  }
  body.set("choices", std::move(entries));
  body.set("usage", usage());
  return json::to_text(body);
}

void TextCompletion::fail_with(int status, std::string message) {
  for (Choice& choice : choices_) {
    if (choice.stream) {
      choice.stream->cancel();
    }
  }
  state_ = State::failed;
  failure_ = refusal(recipe::Api::chat, status, std::move(message));
}

void TextCompletion::cancel() {
  if (state_ == State::running) {
    fail_with(503, "the request was cancelled");
  }
}

std::string TextCompletion::prompt_text() const {
  std::string out;
  for (const TextPrompt& prompt : request_.prompts) {
    out += model_->tokenizer.decode(prompt.ids, tokenizer::SpecialTokens::keep);
  }
  return out;
}

CompletionStatistics TextCompletion::statistics() const {
  CompletionStatistics out{.prompt_tokens = prompt_tokens_};
  const auto num_choices = static_cast<std::size_t>(request_.extras.num_choices);
  for (std::size_t first = 0; first < choices_.size();
       first += num_choices) {  // a prompt counts once, as cached as for its first choice to run
    const auto of_prompt = std::span(choices_).subspan(first, num_choices);
    out.cached_tokens += std::ranges::min_element(of_prompt, {}, &Choice::num_cached)->num_cached;
  }
  for (const Choice& choice : choices_) {
    out.completion_tokens += choice.num_tokens;
  }
  out.to_first_token = first_token_ == TimePoint{} ? Duration{} : first_token_ - started_;
  out.to_last_token = last_token_ == TimePoint{} ? Duration{} : last_token_ - started_;
  out.queue_time = admission_.queue_time;
  out.prefix_miss = admission_.prefix_miss;
  out.first_prefix_miss = admission_.first_prefix_miss;
  const bool is_length = std::ranges::any_of(choices_, [](const Choice& choice) { return choice.finish_reason == "length"; });
  out.finish = state_ == State::failed ? "failed" : state_ == State::running ? "unfinished" : is_length ? "length" : "stop";
  return out;
}

}  // namespace deepinfer::server
