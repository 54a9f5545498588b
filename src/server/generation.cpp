#include "server/generation.h"

#include <charconv>
#include <iterator>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/api_error.h"
#include "server/completion.h"

namespace deepinfer::server {
namespace {

std::string_view api_name(recipe::Api api) {
  switch (api) {
    case recipe::Api::chat:
      return "chat";
    case recipe::Api::messages:
      return "messages";
    case recipe::Api::responses:
      return "responses";
  }
  return "";
}

json::Number milliseconds(Duration duration) {
  char text[32];
  const double value = std::chrono::duration<double, std::milli>(duration).count();
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::fixed, 2);
  return {std::string(text, end)};
}

/// Owned by the exchange's abandonment handler, so that it lives exactly as long as the exchange.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(recipe::Api api, Exchange& exchange) : api_(api), exchange_(exchange) {}

  void start(std::shared_ptr<const ServedModel> model, std::string_view body) {
    auto started = Completion::start(std::move(model), {.api = api_, .body = body}, [gate = exchange_.gate(), weak = weak_from_this()] {
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
    completion_ = std::move(*started);
    if (completion_->wants_stream()) {
      exchange_.begin_stream({.content_type = "text/event-stream; charset=utf-8",
                              .body = {},
                              .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
    }
  }

  void abandon(Abandonment why) {
    if (!completion_) {
      return;
    }
    completion_->cancel();
    if (!exchange_.is_deserted()) {
      fail_with(farewell(why), {});
    }
    end();
  }

 private:
  void advance() {
    if (!completion_) {
      return;
    }
    const bool is_stream = completion_->wants_stream();
    std::string bytes;
    const Completion::State state = completion_->advance([&bytes, is_stream](const recipe::Event& event) {
      if (is_stream) {
        append_event(bytes, event.name, event.data);
      }
    });
    if (state == Completion::State::running) {
      if (!bytes.empty()) {
        exchange_.write(bytes);  // may abandon the exchange, and so end this generation
      }
      return;
    }
    if (state == Completion::State::failed) {
      fail_with(completion_->failure(), std::move(bytes));
    } else {
      finish(std::move(bytes));
    }
    end();
  }

  [[nodiscard]] Refusal farewell(Abandonment why) const {
    const ErrorForm form = api_ == recipe::Api::messages ? ErrorForm::anthropic : ErrorForm::openai;
    const int status = why == Abandonment::out_of_time ? 504 : 503;
    const std::string_view message = why == Abandonment::out_of_time ? "the request took longer than the server allows"
                                     : why == Abandonment::aborted   ? "the request was aborted by an administrator"
                                                                     : "the server is shutting down";
    return {.status = status, .body = error_body(form, status, message), .message = std::string(message)};
  }

  void finish(std::string bytes) {
    if (!completion_->wants_stream()) {
      exchange_.respond({.status = 200, .body = completion_->response()});
      return;
    }
    if (api_ == recipe::Api::chat) {
      append_event(bytes, "", "[DONE]");
    }
    exchange_.write(bytes);
    exchange_.end();
  }

  /// After the first byte of a stream a failure is an event, behind `bytes` of the reply.
  void fail_with(const Refusal& failure, std::string bytes) {
    if (!completion_->wants_stream()) {
      refuse(failure);
      return;
    }
    append_event(bytes, api_ == recipe::Api::chat ? "" : "error", failure.body);
    exchange_.write(bytes);
    exchange_.end();
  }

  void refuse(const Refusal& refusal) {
    Response response{.status = refusal.status, .body = refusal.body};
    if (refusal.status == 429 || refusal.status == 503) {
      response.headers.emplace_back("Retry-After", "1");
    }
    exchange_.respond(std::move(response));
    exchange_.set_details({{"api", api_name(api_)}, {"refused", refusal.message}});
  }

  /// Leaves what the access log says and gives the engine's resources back.
  void end() {
    if (!completion_) {
      return;
    }
    const CompletionStatistics counts = completion_->statistics();
    const Duration decoding = counts.to_last_token - counts.to_first_token;
    json::Object details{{"api", api_name(api_)},
                         {"prompt", counts.prompt_tokens},
                         {"cached", counts.cached_tokens},
                         {"completion", counts.completion_tokens},
                         {"ttft_ms", milliseconds(counts.to_first_token)}};
    if (counts.completion_tokens > 1) {
      details.set("tpot_ms", milliseconds(decoding / (counts.completion_tokens - 1)));
    }
    details.set("finish", counts.finish);
    exchange_.set_details(std::move(details));
    completion_.reset();
  }

  recipe::Api api_;
  Exchange& exchange_;
  std::unique_ptr<Completion> completion_;  ///< empty before the start and after the end
};

}  // namespace

void generate(std::shared_ptr<const ServedModel> model, recipe::Api api, const Request& request,
              const std::shared_ptr<Exchange>& exchange) {
  const auto generation = std::make_shared<Generation>(api, *exchange);
  exchange->on_abandoned([generation](Abandonment why) { generation->abandon(why); });
  generation->start(std::move(model), request.body);
}

}  // namespace deepinfer::server
