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

Result<std::vector<std::unique_ptr<EngineStream>>> EngineStream::submit_choices(const std::shared_ptr<engine::EngineThread>& engine,
                                                                                engine::GenerationRequest request,
                                                                                std::span<const std::uint64_t> seeds, const Wake& wake) {
  std::vector<std::unique_ptr<EngineStream>> streams;
  std::vector<engine::Choice> choices;
  for (const std::uint64_t seed : seeds) {
    auto& stream = streams.emplace_back(new EngineStream(engine));
    stream->inbox_ = std::make_shared<Inbox>();
    stream->inbox_->wake = wake;
    choices.push_back({.seed = seed, .sink = [inbox = stream->inbox_](engine::Output&& output) { inbox->put(std::move(output)); }});
  }
  const auto submitted = engine->submit_choices(std::move(request), std::move(choices));
  if (!submitted) {
    return std::unexpected(submitted.error());
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i]->request_ = (*submitted)[i];
  }
  return streams;
}

AdmissionReport admission_report(const engine::Output& output) {
  return {.queue_time = output.queue_time,
          .prefix_miss = scheduler::name_of(output.prefix_miss),
          .first_prefix_miss = output.first_prefix_miss};
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
