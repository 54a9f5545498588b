#include "apps/local_completion.h"

#include <fmt/format.h>

#include <utility>

namespace deepinfer::apps {
namespace {

constexpr std::chrono::milliseconds kInterruptInterval{50};

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void WakeUp::notify() {
  {
    const std::scoped_lock lock(mutex_);
    is_due_ = true;
  }
  condition_.notify_one();
}

void WakeUp::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  condition_.wait_for(lock, timeout, [this] { return is_due_; });
  is_due_ = false;
}

std::expected<LocalReply, server::Refusal> complete(const std::shared_ptr<const server::ServedModel>& model, const std::string& body,
                                                    const server::Completion::EventSink& sink,
                                                    const std::function<bool()>& is_interrupted) {
  using State = server::Completion::State;
  WakeUp wake_up;
  auto started = server::Reply::start(model, {.body = body}, [&wake_up] { wake_up.notify(); });
  if (!started) {
    return std::unexpected(std::move(started.error()));
  }
  const std::unique_ptr<server::Reply> completion = std::move(*started);
  bool is_cancelled = false;
  State state = State::running;
  while ((state = completion->advance(sink)) == State::running || state == State::preparing) {
    if (is_interrupted && is_interrupted()) {
      is_cancelled = true;
      completion->cancel();
      break;
    }
    wake_up.wait(kInterruptInterval);
  }
  if (state == State::failed) {
    return std::unexpected(completion->failure());
  }
  return LocalReply{.response = completion->response(), .statistics = completion->statistics(), .is_cancelled = is_cancelled};
}

std::string statistics_line(const server::CompletionStatistics& statistics) {
  const double first = seconds(statistics.to_first_token);
  const double decoding = seconds(statistics.to_last_token) - first;
  std::string out = fmt::format("{} prompt tokens", statistics.prompt_tokens);
  if (statistics.cached_tokens > 0) {
    out += fmt::format(" ({} cached)", statistics.cached_tokens);
  }
  out += fmt::format(" · {} tokens in {:.2f} s", statistics.completion_tokens, seconds(statistics.to_last_token));
  if (statistics.completion_tokens > 1 && decoding > 0) {
    out += fmt::format(" ({:.1f} tokens/s)", static_cast<double>(statistics.completion_tokens - 1) / decoding);
  }
  out += fmt::format(" · first token after {:.3f} s · {}", first, statistics.finish);
  return out;
}

}  // namespace deepinfer::apps
