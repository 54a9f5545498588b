#include "server/generation.h"

#include <charconv>
#include <iterator>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/api_error.h"
#include "server/reply.h"
#include "server/text_completion.h"

namespace deepinfer::server {
namespace {

json::Number milliseconds(Duration duration) {
  char text[32];
  const double value = std::chrono::duration<double, std::milli>(duration).count();
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::fixed, 2);
  return {std::string(text, end)};
}

recipe::Api api_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::messages:
      return recipe::Api::messages;
    case Endpoint::responses:
      return recipe::Api::responses;
    default:
      return recipe::Api::chat;
  }
}

std::string_view farewell(Abandonment why) {
  switch (why) {
    case Abandonment::out_of_time:
      return "the request took longer than the server allows";
    case Abandonment::aborted:
      return "the request was aborted";
    default:
      return "the server is shutting down";
  }
}

/// Owned by the exchange's abandonment handler, so that it lives exactly as long as the exchange. `Work` is Reply or TextCompletion.
template <class Work>
class Generation : public std::enable_shared_from_this<Generation<Work>> {
 public:
  Generation(GenerationContext context, Exchange& exchange) : context_(std::move(context)), exchange_(exchange) {}

  void start(const Request& request, std::unique_ptr<RunningRequests::Entry> entry) {
    auto started = Work::start(context_.model,
                               {.api = api_of(context_.endpoint),
                                .body = request.body,
                                .owner = context_.owner,
                                .turns = &context_.shared.turns,
                                .responses = &context_.shared.responses},
                               [gate = exchange_.gate(), weak = this->weak_from_this()] {
                                 gate->post([weak] {
                                   if (const auto self = weak.lock()) {
                                     self->advance();
                                   }
                                 });
                               });
    if (!started) {
      refuse(started.error());
      return;
    }
    work_ = std::move(*started);
    entry_ = std::move(entry);
    entry_->add_name(work_->id());
    if (work_->state() != Completion::State::preparing) {
      open_stream();
    }
  }

  void abandon(Abandonment why) {
    if (!work_) {
      return;
    }
    work_->cancel();
    if (!exchange_.is_deserted()) {
      const int status = why == Abandonment::out_of_time ? 504 : 503;
      fail_with(refusal(api_of(context_.endpoint), status, std::string(farewell(why))), {});
    }
    end();
  }

 private:
  void open_stream() {
    if (work_->wants_stream() && !std::exchange(is_open_, true)) {
      exchange_.begin_stream({.content_type = "text/event-stream; charset=utf-8",
                              .body = {},
                              .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
    }
  }

  void advance() {
    if (!work_) {
      return;
    }
    const bool is_stream = work_->wants_stream();
    std::string bytes;
    const Completion::State state = work_->advance([&bytes, is_stream](const recipe::Event& event) {
      if (is_stream) {
        append_event(bytes, event.name, event.data);
      }
    });
    if (state == Completion::State::preparing) {
      return;
    }
    if (state != Completion::State::failed) {
      open_stream();
    }
    if (state == Completion::State::running) {
      if (!bytes.empty()) {
        exchange_.write(bytes);  // may abandon the exchange, and so end this generation
      }
      return;
    }
    if (state == Completion::State::failed) {
      fail_with(work_->failure(), std::move(bytes));
    } else {
      finish(std::move(bytes));
    }
    end();
  }

  void finish(std::string bytes) {
    if (!work_->wants_stream()) {
      exchange_.respond({.status = 200, .body = work_->response()});
      return;
    }
    if (has_unnamed_events()) {
      append_event(bytes, "", "[DONE]");
    }
    exchange_.write(bytes);
    exchange_.end();
  }

  /// Behind the head of a stream a failure is an event, behind `bytes` of the reply.
  void fail_with(const Refusal& failure, std::string bytes) {
    if (!is_open_) {
      refuse(failure);
      return;
    }
    append_event(bytes, has_unnamed_events() ? "" : "error", failure.body);
    exchange_.write(bytes);
    exchange_.end();
  }

  void refuse(const Refusal& refusal) {
    Response response{.status = refusal.status, .body = refusal.body};
    if (refusal.status == 429) {
      response.headers.emplace_back("Retry-After", std::to_string(engine::retry_after(context_.model->engine->stats()).count()));
    } else if (refusal.status == 503) {
      response.headers.emplace_back("Retry-After", "1");
    }
    exchange_.respond(std::move(response));
    exchange_.set_details({{"api", api_name(context_.endpoint)}, {"refused", refusal.message}});
  }

  /// Leaves what the access log and the metrics say and gives the engine's resources back.
  void end() {
    if (!work_) {
      return;
    }
    const CompletionStatistics counts = work_->statistics();
    context_.shared.metrics.count_generation(counts);
    const Duration decoding = counts.to_last_token - counts.to_first_token;
    json::Object details{{"api", api_name(context_.endpoint)},
                         {"prompt", counts.prompt_tokens},
                         {"cached", counts.cached_tokens},
                         {"miss", counts.prefix_miss},
                         {"miss_at", counts.first_prefix_miss},
                         {"queue_ms", milliseconds(counts.queue_time)},
                         {"completion", counts.completion_tokens},
                         {"ttft_ms", milliseconds(counts.to_first_token)}};
    if (counts.completion_tokens > 1) {
      details.set("tpot_ms", milliseconds(decoding / (counts.completion_tokens - 1)));
    }
    details.set("finish", counts.finish);
    if (context_.log_prompts) {
      details.set("prompt_text", work_->prompt_text());
    }
    exchange_.set_details(std::move(details));
    work_.reset();
    entry_.reset();
  }

  [[nodiscard]] bool has_unnamed_events() const {
    return context_.endpoint == Endpoint::chat_completions || context_.endpoint == Endpoint::completions;
  }

  GenerationContext context_;
  Exchange& exchange_;
  std::unique_ptr<RunningRequests::Entry> entry_;
  std::unique_ptr<Work> work_;  ///< empty before the start and after the end
  bool is_open_ = false;        ///< the head of a stream was sent
};

template <class Work>
void start(GenerationContext context, const Request& request, const std::shared_ptr<Exchange>& exchange) {
  auto entry = context.shared.running.begin(context.owner, [gate = exchange->gate(), weak = std::weak_ptr(exchange)] {
    gate->post([weak] {
      if (const auto aborted = weak.lock()) {
        aborted->abandon(Abandonment::aborted);
      }
    });
  });
  if (!entry) {
    exchange->respond(error_response(error_form(request.head.path), 429, "this API key has too many requests running; try again"));
    return;
  }
  entry->add_name(request.head.request_id);
  const auto generation = std::make_shared<Generation<Work>>(std::move(context), *exchange);
  exchange->on_abandoned([generation](Abandonment why) { generation->abandon(why); });
  generation->start(request, std::move(entry));
}

}  // namespace

void generate(GenerationContext context, const Request& request, const std::shared_ptr<Exchange>& exchange) {
  if (context.endpoint == Endpoint::completions) {
    start<TextCompletion>(std::move(context), request, exchange);
  } else {
    start<Reply>(std::move(context), request, exchange);
  }
}

}  // namespace deepinfer::server
