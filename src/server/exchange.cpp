#include "server/exchange.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::server {

void TaskGate::post(Task task) {
  const std::scoped_lock lock(mutex_);
  if (post_) {
    post_(std::move(task));
  }
}

void TaskGate::close() {
  const std::scoped_lock lock(mutex_);
  post_ = nullptr;
}

Exchange::Exchange(std::shared_ptr<TaskGate> gate, std::size_t max_unsent_bytes, std::function<void()> wake)
    : gate_(std::move(gate)), max_unsent_bytes_(max_unsent_bytes), wake_(std::move(wake)) {}

bool Exchange::is_writable() const { return !ended_ && !is_deserted(); }

void Exchange::wake() const {
  if (wake_) {
    wake_();
  }
}

void Exchange::respond(Response response) {
  if (begun_ || !is_writable()) {
    return;
  }
  response_ = std::move(response);
  begun_ = true;
  ended_ = true;
  wake();
}

void Exchange::begin_stream(Response head) {
  if (begun_ || !is_writable()) {
    return;
  }
  stream_head_ = std::move(head);
  begun_ = true;
  wake();
}

void Exchange::write(std::string_view bytes) {
  check(begun_ || abandoned_, "body bytes follow begin_stream");
  if (!begun_ || !is_writable()) {
    return;
  }
  if (unsent_.size() + bytes.size() > max_unsent_bytes_) {
    abandon(Abandonment::reader_too_slow);
    return;
  }
  unsent_.append(bytes);
  wake();
}

void Exchange::end() {
  if (is_writable()) {
    ended_ = true;
    wake();
  }
}

void Exchange::on_abandoned(std::move_only_function<void(Abandonment)> handler) {
  if (abandoned_) {
    handler(*abandoned_);
  } else {
    on_abandoned_ = std::move(handler);
  }
}

std::optional<Response> Exchange::take_response() { return std::exchange(response_, std::nullopt); }
std::optional<Response> Exchange::take_stream_head() { return std::exchange(stream_head_, std::nullopt); }
std::string Exchange::take_unsent() { return std::exchange(unsent_, {}); }

void Exchange::abandon(Abandonment why) {
  if (abandoned_ || ended_) {
    return;
  }
  abandoned_ = why;
  if (on_abandoned_) {
    std::exchange(on_abandoned_, nullptr)(why);
  }
  wake();
}

}  // namespace deepinfer::server
