#include "server/engine_stream.h"

#include <mutex>
#include <utility>

namespace deepinfer::server {

/// Where the engine thread leaves outputs. Survives the stream for as long as the engine holds its sink.
struct EngineStream::Inbox {
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

Result<std::unique_ptr<EngineStream>> EngineStream::submit(std::shared_ptr<engine::EngineThread> engine, engine::GenerationRequest request,
                                                           Wake wake) {
  auto stream = std::unique_ptr<EngineStream>(new EngineStream(std::move(engine)));
  stream->inbox_ = std::make_shared<Inbox>();
  stream->inbox_->wake = std::move(wake);
  const auto submitted =
      stream->engine_->submit(std::move(request), [inbox = stream->inbox_](engine::Output&& output) { inbox->put(std::move(output)); });
  if (!submitted) {
    return std::unexpected(submitted.error());
  }
  stream->request_ = *submitted;
  return stream;
}

EngineStream::~EngineStream() {
  cancel();
  inbox_->close();
}

std::vector<engine::Output> EngineStream::take() {
  std::vector<engine::Output> outputs = inbox_->take();
  if (!outputs.empty() && outputs.back().finish) {
    request_.reset();
  }
  return outputs;
}

void EngineStream::cancel() {
  if (request_) {
    engine_->cancel(*std::exchange(request_, std::nullopt));
  }
}

}  // namespace deepinfer::server
