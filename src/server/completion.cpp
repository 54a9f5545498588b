#include "server/completion.h"

#include <chrono>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "recipe/render.h"
#include "server/api_error.h"
#include "server/http_message.h"

namespace deepinfer::server {
namespace {

ErrorForm form_of(recipe::Api api) { return api == recipe::Api::messages ? ErrorForm::anthropic : ErrorForm::openai; }

Refusal refusal(recipe::Api api, int status, std::string message) {
  return {.status = status, .body = error_body(form_of(api), status, message), .message = std::move(message)};
}

/// Conversion errors are official to the byte; unreadable bodies take the form of the API, which the package does not define.
Refusal refusal(recipe::Api api, recipe::RequestError error) {
  if (error.stage == recipe::RequestError::Stage::convert) {
    return {.status = error.status, .body = std::move(error.body), .message = std::move(error.message)};
  }
  return refusal(api, error.status, std::move(error.message));
}

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::exhausted:
      return 429;
    case ErrorKind::cancelled:
      return 503;
    case ErrorKind::invalid_argument:
    case ErrorKind::unsupported:
      return 400;
    default:
      return 500;
  }
}

std::uint64_t random_bits() {
  thread_local std::random_device entropy;
  return (std::uint64_t{entropy()} << 32) | entropy();
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

engine::SamplingParams sampling_params(const recipe::InferenceOptions& options, const CompletionRequest& request) {
  return {.temperature = options.temperature,
          .top_p = options.top_p,
          .top_k = request.top_k,
          .seed = options.seed ? static_cast<std::uint64_t>(*options.seed) : random_bits(),
          .want_logprobs = options.logprobs,
          .num_top_logprobs = static_cast<std::int32_t>(options.top_logprobs.value_or(0))};
}

recipe::TokenLogprob token_logprob(const engine::TokenOutput& token) {
  recipe::TokenLogprob out{.logprob = token.logprob, .top = {}};
  out.top.assign(token.top_logprobs.begin(), token.top_logprobs.end());
  return out;
}

}  // namespace

recipe::ConvertOptions convert_options(const std::string& name) {
  recipe::ConvertOptions out;
  out.model_versions = {{"DeepSeek-V4.1-Flash", recipe::ModelVersion::v4_1}, {name, recipe::ModelVersion::v4_1}};
  return out;
}

std::string new_response_id(recipe::Api api) {
  const std::string_view prefix = api == recipe::Api::chat ? "chatcmpl-" : api == recipe::Api::messages ? "msg_" : "resp_";
  return std::string(prefix) + sane_request_id({});
}

/// Where the engine thread leaves outputs. Survives the completion for as long as the engine holds its sink.
struct Completion::Inbox {
  std::mutex mutex;
  std::vector<engine::Output> outputs;
  Wake wake;               ///< empty: nobody reads any more
  bool is_waiting = true;  ///< the reader has taken everything and wants to be woken

  void put(engine::Output&& output) {
    const std::scoped_lock lock(mutex);
    if (!wake) {
      return;
    }
    outputs.push_back(std::move(output));
    if (std::exchange(is_waiting, false)) {
      wake();
    }
  }
  std::vector<engine::Output> take() {
    const std::scoped_lock lock(mutex);
    is_waiting = true;
    return std::exchange(outputs, {});
  }
  void close() {
    const std::scoped_lock lock(mutex);
    wake = nullptr;
    outputs.clear();
  }
};

std::shared_ptr<Completion::Inbox> Completion::make_inbox(Wake wake) {
  auto inbox = std::make_shared<Inbox>();
  inbox->wake = std::move(wake);
  return inbox;
}

Completion::Completion(std::shared_ptr<const ServedModel> model, recipe::ReplyStreamOptions options, recipe::Api api)
    : model_(std::move(model)), api_(api), reply_(std::move(options)), started_(SteadyClock().now()) {}

Completion::~Completion() {
  stop_engine();
  if (inbox_) {
    inbox_->close();
  }
}

std::expected<std::unique_ptr<Completion>, Refusal> Completion::start(std::shared_ptr<const ServedModel> model,
                                                                      const CompletionRequest& request, Wake wake) {
  const recipe::Api api = request.api;
  auto converted = recipe::convert(api, request.body, model->convert);
  if (!converted) {
    return std::unexpected(refusal(api, std::move(converted.error())));
  }
  const recipe::Prompt prompt = recipe::render(converted->conversation, converted->version, model->convert.special_tokens);
  if (!prompt.images.empty()) {
    return std::unexpected(refusal(api, 400, "the model " + model->name + " does not take images"));
  }
  auto ids = recipe::encode_prompt(prompt, model->tokenizer);
  if (!ids) {
    return std::unexpected(refusal(api, 500, std::move(ids.error().message)));
  }
  const auto max_tokens = recipe::resolve_max_tokens(*converted, ids->size(), static_cast<std::uint64_t>(model->context_length));
  if (!max_tokens) {
    return std::unexpected(refusal(api, max_tokens.error()));
  }

  recipe::ReplyStreamOptions options = recipe::reply_stream_options(api, *converted);
  options.id = new_response_id(api);
  options.tokenizer = &model->tokenizer;
  options.random_bits = random_bits;
  options.unix_time = unix_time;
  auto completion = std::unique_ptr<Completion>(new Completion(model, std::move(options), api));
  completion->wants_stream_ = converted->stream;
  completion->wants_logprobs_ = converted->inference.logprobs;
  completion->prompt_tokens_ = ids->size();
  completion->inbox_ = make_inbox(std::move(wake));

  engine::GenerationRequest generation{.prompt = std::move(*ids),
                                       .sampling = sampling_params(converted->inference, request),
                                       .max_tokens = static_cast<std::int32_t>(*max_tokens),
                                       .ignore_eos = request.ignore_eos,
                                       .stop_strings = {}};  // the reply parser looks for them: they count in the content only
  const auto submitted = model->engine->submit(std::move(generation),
                                               [inbox = completion->inbox_](engine::Output&& output) { inbox->put(std::move(output)); });
  if (!submitted) {
    return std::unexpected(refusal(api, status_of(submitted.error().kind), submitted.error().message));
  }
  completion->engine_request_ = *submitted;
  return completion;
}

Completion::State Completion::advance(const EventSink& sink) {
  for (const engine::Output& output : inbox_->take()) {
    if (state_ == State::running) {
      take(output, sink);
    }
  }
  return state_;
}

void Completion::take(const engine::Output& output, const EventSink& sink) {
  const auto emit = [&sink](std::span<const recipe::Event> events) {
    for (const recipe::Event& event : events) {
      sink(event);
    }
  };
  const bool has_failed = output.finish && output.finish->reason == engine::FinishReason::failed;
  if (!is_ready_ && !has_failed) {
    is_ready_ = true;
    recipe::ReadyInfo info;
    info.prompt_tokens = prompt_tokens_;
    info.cached_tokens = static_cast<std::uint64_t>(output.num_cached_tokens);
    emit(reply_.ready(info));
  }
  if (!output.tokens.empty()) {
    last_token_ = SteadyClock().now();
    first_token_ = first_token_ == TimePoint{} ? last_token_ : first_token_;
    std::vector<TokenId> ids;
    std::vector<recipe::TokenLogprob> logprobs;
    for (const engine::TokenOutput& token : output.tokens) {
      ids.push_back(token.token);
      logprobs.push_back(token_logprob(token));
    }
    const auto events = reply_.tokens(ids, wants_logprobs_ ? &logprobs : nullptr);
    if (!events) {
      fail_with(500, events.error().message);
      return;
    }
    emit(*events);
  }
  if (reply_.finished()) {  // a stop sequence
    stop_engine();
    state_ = State::finished;
    finish_ = "stop";
  } else if (output.finish) {
    engine_request_.reset();
    end(*output.finish, sink);
  }
}

void Completion::end(const engine::Finish& finish, const EventSink& sink) {
  switch (finish.reason) {
    case engine::FinishReason::cancelled:
      fail_with(503, "the request was cancelled");
      finish_ = "cancelled";
      return;
    case engine::FinishReason::failed:
      fail_with(500, finish.message);
      return;
    default:
      break;
  }
  const bool is_length = finish.reason == engine::FinishReason::length;
  for (const recipe::Event& event : reply_.finish(is_length ? recipe::BackendFinish::length : recipe::BackendFinish::stop)) {
    sink(event);
  }
  state_ = State::finished;
  finish_ = is_length ? "length" : "stop";
}

void Completion::fail_with(int status, std::string message) {
  stop_engine();
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

void Completion::stop_engine() {
  if (engine_request_) {
    model_->engine->cancel(*std::exchange(engine_request_, std::nullopt));
  }
}

CompletionStatistics Completion::statistics() const {
  const recipe::Usage& usage = reply_.usage();
  return {.prompt_tokens = prompt_tokens_,
          .cached_tokens = usage.cached_tokens,
          .completion_tokens = usage.completion_tokens,
          .to_first_token = first_token_ == TimePoint{} ? Duration{} : first_token_ - started_,
          .to_last_token = last_token_ == TimePoint{} ? Duration{} : last_token_ - started_,
          .finish = finish_};
}

}  // namespace deepinfer::server
