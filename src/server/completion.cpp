#include "server/completion.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "grammar/composite.h"

namespace deepinfer::server {
namespace {

engine::SamplingParams sampling_params(const PreparedRequest& request) {
  const recipe::InferenceOptions& options = request.converted.inference;
  engine::SamplingParams out = request.extras.sampling;
  out.temperature = options.temperature;
  out.top_p = options.top_p;
  out.want_logprobs = options.logprobs;
  out.num_top_logprobs = static_cast<std::int32_t>(options.top_logprobs.value_or(0));
  return out;
}

recipe::TokenLogprob token_logprob(const engine::TokenOutput& token) {
  recipe::TokenLogprob out{.logprob = token.logprob, .top = {}};
  out.top.assign(token.top_logprobs.begin(), token.top_logprobs.end());
  return out;
}

}  // namespace

Completion::Completion(std::shared_ptr<const ServedModel> model, recipe::ReplyStreamOptions options, const PreparedRequest& request)
    : model_(std::move(model)),
      api_(request.api),
      reply_(std::move(options)),
      wants_logprobs_(request.converted.inference.logprobs),
      prompt_tokens_(request.prompt.size()),
      started_(SteadyClock().now()) {}

Completion::~Completion() = default;

std::expected<std::vector<std::unique_ptr<Completion>>, Refusal> Completion::start_choices(const std::shared_ptr<const ServedModel>& model,
                                                                                           const PreparedRequest& request,
                                                                                           const Wake& wake) {
  engine::GenerationRequest generation{.prompt = request.prompt,
                                       .sampling = sampling_params(request),
                                       .max_tokens = static_cast<std::int32_t>(request.max_tokens),
                                       .ignore_eos = request.extras.ignore_eos,
                                       .stop_strings = {},  // the reply parser looks for them: they count in the content only
                                       .priority = request.extras.priority,
                                       .time_limit = request.extras.time_limit,
                                       .cache_salt = request.extras.cache_salt,
                                       .constraint = request.constraint,
                                       .images = request.images};
  std::vector<std::uint64_t> seeds(static_cast<std::size_t>(request.extras.num_choices));
  std::iota(seeds.begin(), seeds.end(), request.seed);
  auto streams = EngineStream::submit_choices(model->engine, std::move(generation), seeds, wake);
  if (!streams) {
    return std::unexpected(refusal(request.api, status_of(streams.error().kind), streams.error().message));
  }
  std::vector<std::unique_ptr<Completion>> out;
  for (std::unique_ptr<EngineStream>& stream : *streams) {
    recipe::ReplyStreamOptions options = recipe::reply_stream_options(request.api, request.converted);
    options.id = request.id;
    options.tokenizer = &model->tokenizer;
    options.random_bits = random_bits;
    options.unix_time = unix_time;
    out.emplace_back(new Completion(model, std::move(options), request))->stream_ = std::move(stream);
  }
  return out;
}

std::expected<std::unique_ptr<Completion>, Refusal> Completion::start(std::shared_ptr<const ServedModel> model,
                                                                      const CompletionRequest& request, Wake wake) {
  auto prepared = prepare(*model, request);
  if (!prepared) {
    return std::unexpected(std::move(prepared.error()));
  }
  if (prepared->job) {
    if (auto constrained = set_constraint(*prepared, grammar::compile_composite(*prepared->job)); !constrained) {
      return std::unexpected(std::move(constrained.error()));
    }
  }
  auto started = start_choices(model, *prepared, wake);
  if (!started) {
    return std::unexpected(std::move(started.error()));
  }
  return std::move(started->front());
}

Completion::State Completion::advance(const EventSink& sink) {
  for (const engine::Output& output : stream_->take()) {
    if (state_ == State::running) {
      take(output, sink);
    }
  }
  return state_;
}

void Completion::take(const engine::Output& output, const EventSink& sink) {
  const bool has_failed = output.finish && output.finish->reason == engine::FinishReason::failed;
  if (!is_ready_ && !has_failed) {
    is_ready_ = true;
    admission_ = admission_report(output);
    recipe::ReadyInfo info;
    info.prompt_tokens = prompt_tokens_;
    info.cached_tokens = static_cast<std::uint64_t>(output.num_cached_tokens);
    for (const recipe::Event& event : reply_.ready(info)) {
      sink(event);
    }
  }
  if (!output.tokens.empty() && !parse(output.tokens, sink)) {
    return;
  }
  if (reply_.finished()) {  // a stop sequence
    stream_->cancel();
    state_ = State::finished;
    finish_ = "stop";
  } else if (output.finish) {
    end(*output.finish, sink);
  }
}

/// False when the completion has failed.
bool Completion::parse(std::span<const engine::TokenOutput> tokens, const EventSink& sink) {
  last_token_ = SteadyClock().now();
  first_token_ = first_token_ == TimePoint{} ? last_token_ : first_token_;
  const std::size_t num_before = generated_.size();
  std::vector<recipe::TokenLogprob> logprobs;
  for (const engine::TokenOutput& token : tokens) {
    generated_.push_back(token.token);
    if (wants_logprobs_) {
      logprobs.push_back(token_logprob(token));
    }
  }
  const auto events = reply_.tokens(std::span(generated_).subspan(num_before), wants_logprobs_ ? &logprobs : nullptr);
  if (!events) {
    fail_with(500, events.error().message);
    return false;
  }
  for (const recipe::Event& event : *events) {
    sink(event);
  }
  return true;
}

void Completion::end(const engine::Finish& finish, const EventSink& sink) {
  switch (finish.reason) {
    case engine::FinishReason::cancelled:
      fail_with(503, "the request was cancelled");
      finish_ = "cancelled";
      return;
    case engine::FinishReason::timed_out:
      fail_with(504, "the request did not end within its time limit");
      return;
    case engine::FinishReason::failed:
      fail_with(500, finish.message);
      return;
    default:
      break;
  }
  if (!model_->strict_official) {
    reply_.count_drafts(static_cast<std::uint64_t>(finish.num_verified_drafts), static_cast<std::uint64_t>(finish.num_accepted_drafts));
  }
  const bool is_length = finish.reason == engine::FinishReason::length;
  for (const recipe::Event& event : reply_.finish(is_length ? recipe::BackendFinish::length : recipe::BackendFinish::stop)) {
    sink(event);
  }
  state_ = State::finished;
  finish_ = is_length ? "length" : "stop";
}

void Completion::fail_with(int status, std::string message) {
  stream_->cancel();
  state_ = State::failed;
  finish_ = "failed";
  failure_ = refusal(api_, status, std::move(message));
}

void Completion::cancel() {
  if (state_ == State::running) {
    fail_with(503, "the request was cancelled");
    finish_ = "cancelled";
  }
}

CompletionStatistics Completion::statistics() const {
  const recipe::Usage& usage = reply_.usage();
  return {.prompt_tokens = prompt_tokens_,
          .cached_tokens = usage.cached_tokens,
          .completion_tokens = usage.completion_tokens,
          .reasoning_tokens = usage.reasoning_tokens.value_or(0),
          .to_first_token = first_token_ == TimePoint{} ? Duration{} : first_token_ - started_,
          .to_last_token = last_token_ == TimePoint{} ? Duration{} : last_token_ - started_,
          .queue_time = admission_.queue_time,
          .prefix_miss = admission_.prefix_miss,
          .first_prefix_miss = admission_.first_prefix_miss,
          .finish = finish_};
}

}  // namespace deepinfer::server
