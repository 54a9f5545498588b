// One choice passes through untouched. Of several, every chunk gets its index, and the usage of all stands in the last one.
#include "server/reply.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "server/response_store.h"
#include "server/turn_store.h"

namespace deepinfer::server {
namespace {

void add_member(json::Object& total, const json::Object& more, std::string_view name) {
  json::Value* const sum = total.find(name);
  const json::Value* const value = more.find(name);
  if (sum != nullptr && value != nullptr && sum->as_number() != nullptr && value->as_number() != nullptr) {
    *sum = sum->as_number()->as_uint64().value_or(0) + value->as_number()->as_uint64().value_or(0);
  }
}

std::uint64_t count_of(const json::Object& usage, std::string_view name) {
  const json::Value* const value = usage.find(name);
  return value == nullptr || value->as_number() == nullptr ? 0 : value->as_number()->as_uint64().value_or(0);
}

/// The prompt is the same for all choices and counts once, cached as far as it was for the first that ran: later ones find more.
void add_usage(std::optional<json::Object>& total, const json::Object& more) {
  if (!total) {
    total = more;
    return;
  }
  if (count_of(more, "prompt_cache_hit_tokens") < count_of(*total, "prompt_cache_hit_tokens")) {
    for (const char* const name : {"prompt_tokens_details", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens"}) {
      if (const json::Value* const value = more.find(name)) {
        total->set(name, *value);
      }
    }
  }
  add_member(*total, more, "completion_tokens");
  json::Value* const details = total->find("completion_tokens_details");
  const json::Value* const more_details = more.find("completion_tokens_details");
  if (details != nullptr && details->as_object() != nullptr && more_details != nullptr && more_details->as_object() != nullptr) {
    for (const char* const name : {"reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"}) {
      if (more_details->find(name) != nullptr) {
        add_member(*details->as_object(), *more_details->as_object(), name);
      }
    }
  }
  total->set("total_tokens", count_of(*total, "prompt_tokens") + count_of(*total, "completion_tokens"));
}

/// The only choice of a chat chunk or body.
json::Object* only_choice(json::Value& chunk) {
  json::Value* const choices = chunk.as_object() == nullptr ? nullptr : chunk.as_object()->find("choices");
  check(choices != nullptr && choices->as_array() != nullptr && choices->as_array()->size() == 1, "a chat chunk has one choice");
  return choices->as_array()->front().as_object();
}

const json::Object* usage_of(const json::Value& chunk) {
  const json::Value* const usage = chunk.find("usage");
  return usage == nullptr ? nullptr : usage->as_object();
}

}  // namespace

Reply::Reply(PreparedRequest prepared, const CompletionRequest& request)
    : request_(std::move(prepared)), owner_(request.owner), turns_(request.turns), responses_(request.responses) {}

std::expected<std::unique_ptr<Reply>, Refusal> Reply::start(const std::shared_ptr<const ServedModel>& model,
                                                            const CompletionRequest& request, const Wake& wake) {
  auto prepared = prepare(*model, request);
  if (!prepared) {
    return std::unexpected(std::move(prepared.error()));
  }
  auto reply = std::unique_ptr<Reply>(new Reply(std::move(*prepared), request));
  reply->model_ = model;
  if (auto begun = reply->begin(wake); !begun) {
    return std::unexpected(std::move(begun.error()));
  }
  return reply;
}

std::expected<void, Refusal> Reply::begin(const Wake& wake) {
  if (!request_.job) {
    return start_choices(wake);
  }
  if (const auto known = model_->compiler->find(*request_.job)) {
    return constrain(*known, wake);
  }
  pending_ = PendingConstraint::submit(*model_->compiler, *std::exchange(request_.job, std::nullopt), wake);
  if (!pending_) {
    return std::unexpected(refusal(request_.api, 429, "too many requests wait for their constraints to be compiled; try again later"));
  }
  wake_ = wake;
  compile_begin_ = SteadyClock().now();
  state_ = State::preparing;
  return {};
}

std::expected<void, Refusal> Reply::constrain(const grammar::CompileResult& compiled, const Wake& wake) {
  if (auto constrained = set_constraint(request_, compiled); !constrained) {
    return constrained;
  }
  return start_choices(wake);
}

std::expected<void, Refusal> Reply::start_choices(const Wake& wake) {
  auto started = Completion::start_choices(model_, request_, wake);
  if (!started) {
    return std::unexpected(std::move(started.error()));
  }
  request_.images.clear();  // the engine has them
  choices_ = std::move(*started);
  state_ = State::running;
  return {};
}

Reply::State Reply::advance(const Completion::EventSink& sink) {
  if (state_ == State::preparing) {
    if (const auto compiled = pending_->take()) {
      pending_.reset();
      compile_time_ = SteadyClock().now() - compile_begin_;
      if (auto begun = constrain(*compiled, wake_); !begun) {
        state_ = State::failed;
        failure_ = std::move(begun.error());
      }
    }
  }
  if (state_ != State::running) {
    return state_;
  }
  bool all_finished = true;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const State state = choices_[i]->advance([&](const recipe::Event& event) { emit(i, event, sink); });
    if (state == State::failed) {
      state_ = State::failed;
      failure_ = choices_[i]->failure();
      std::ranges::for_each(choices_, &Completion::cancel);
      return state_;
    }
    all_finished = all_finished && state == State::finished;
  }
  if (all_finished) {
    state_ = State::finished;
    keep(*model_);
  }
  return state_;
}

void Reply::emit(std::size_t choice, const recipe::Event& event, const Completion::EventSink& sink) {
  if (choices_.size() == 1) {
    sink(event);
    return;
  }
  Result<json::Value> chunk = json::parse(event.data);
  check(chunk.has_value(), "events are JSON");
  json::Object* const entry = only_choice(*chunk);
  entry->set("index", static_cast<std::uint64_t>(choice));
  if (const json::Object* const usage = usage_of(*chunk)) {
    add_usage(usage_, *usage);
    json::Object& members = *chunk->as_object();
    if (++num_ended_ == choices_.size()) {
      members.set("usage", *usage_);
    } else if (request_.converted.include_usage) {
      members.set("usage", nullptr);
    } else {
      members.erase("usage");
    }
  }
  const std::string text = json::to_text(*chunk);
  sink({.name = event.name, .data = text});
}

void Reply::cancel() {
  std::ranges::for_each(choices_, &Completion::cancel);
  pending_.reset();
  if (state_ == State::running || state_ == State::preparing) {
    state_ = State::failed;
    failure_ = refusal(request_.api, 503, "the request was cancelled");
  }
}

std::string Reply::response() const {
  if (choices_.size() == 1) {
    return choices_.front()->response();
  }
  json::Value body;
  json::Array entries;
  std::optional<json::Object> usage;
  for (const auto& choice : choices_) {
    Result<json::Value> one = json::parse(choice->response(), {.max_depth = 1000});
    check(one.has_value(), "a response is JSON");
    json::Object* const entry = only_choice(*one);
    entry->set("index", static_cast<std::uint64_t>(entries.size()));
    entries.emplace_back(std::move(*entry));
    if (const json::Object* const counts = usage_of(*one)) {
      add_usage(usage, *counts);
    }
    body = std::move(*one);
  }
  body.as_object()->set("choices", std::move(entries));
  if (usage) {
    body.as_object()->set("usage", std::move(*usage));
  }
  return json::to_text(body);
}

std::string Reply::prompt_text() const { return model_->tokenizer.decode(request_.prompt, tokenizer::SpecialTokens::keep); }

CompletionStatistics Reply::statistics() const {
  if (choices_.empty()) {
    return {.prompt_tokens = request_.prompt.size(), .compile_time = compile_time_, .finish = "failed"};
  }
  CompletionStatistics out = choices_.front()->statistics();
  out.compile_time = compile_time_;
  for (std::size_t i = 1; i < choices_.size(); ++i) {
    const CompletionStatistics more = choices_[i]->statistics();
    out.cached_tokens = std::min(out.cached_tokens, more.cached_tokens);
    out.completion_tokens += more.completion_tokens;
    out.reasoning_tokens += more.reasoning_tokens;
    out.to_first_token = std::min(out.to_first_token, more.to_first_token);
    out.to_last_token = std::max(out.to_last_token, more.to_last_token);
  }
  return out;
}

/// The ids behind the think token that opened the reply: a forced calls opener stands there, then what the model wrote.
recipe::GeneratedTurn Reply::generated_turn(const ServedModel& model, const Completion& completion) const {
  const recipe::SpecialTokens& tokens = model.convert.special_tokens;
  const recipe::ThinkingMode mode = request_.converted.conversation.thinking_mode;
  const bool is_thinking = mode == recipe::ThinkingMode::on;
  const std::optional<TokenId> opener = model.tokenizer.find(is_thinking ? tokens.thinking_start : tokens.thinking_end);
  recipe::GeneratedTurn out{.thinking_mode = mode, .text = {}, .ids = {}};
  if (opener) {
    const auto last = std::ranges::find(request_.prompt.rbegin(), request_.prompt.rend(), *opener);
    out.ids.assign(last.base(), request_.prompt.end());
  }
  out.ids.insert(out.ids.end(), completion.generated().begin(), completion.generated().end());
  out.text = model.tokenizer.decode(out.ids, tokenizer::SpecialTokens::keep);
  return out;
}

void Reply::keep(const ServedModel& model) const {
  if (turns_ != nullptr) {
    for (const auto& choice : choices_) {
      // A reply that was cut after its last allowed call is no turn that the model would have written.
      const bool is_whole = choice->statistics().finish == "stop" && !request_.converted.parsing.max_calls;
      if (is_whole && !choice->turn().calls.empty()) {
        turns_->keep(owner_, choice->turn(), generated_turn(model, *choice));
      }
    }
  }
  if (responses_ == nullptr || !request_.input_items) {
    return;
  }
  StoredResponse stored{.owner = owner_, .body = response(), .items = {}};
  Result<json::Value> body = json::parse(stored.body, {.max_depth = 1000});
  check(body.has_value(), "a response is JSON");
  json::Array items = *request_.input_items;
  if (json::Value* const output = body->as_object()->find("output"); output != nullptr && output->as_array() != nullptr) {
    items.insert(items.end(), std::make_move_iterator(output->as_array()->begin()), std::make_move_iterator(output->as_array()->end()));
  }
  stored.items = json::to_text(items);
  responses_->keep(request_.id, std::move(stored));
}

}  // namespace deepinfer::server
