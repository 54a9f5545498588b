// A transport whose handler echoes, holds or streams, for tests over loopback sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/bounded_queue.h"
#include "loopback_client.h"
#include "server/http_server.h"

namespace deepinfer::server {

using namespace std::chrono_literals;
constexpr auto kPatience = 10s;

/// "/hold" is answered by the test, "/stream" begins a stream, "/refused" is refused before its body; other paths echo.
class HttpBench {
 public:
  explicit HttpBench(HttpOptions options = {}) {
    options.port = 0;
    HttpHandler handler{
        .admit = [](const RequestHead& head) -> std::optional<Response> {
          return head.path == "/refused" ? std::optional(Response{.status = 401, .body = "no"}) : std::nullopt;
        },
        .handle = [this](Request request, const std::shared_ptr<Exchange>& exchange) { handle(std::move(request), exchange); },
        .refuse = [](int status, std::string_view, const std::string& message) { return Response{.status = status, .body = message}; },
        .finished = [this](const AccessRecord& record) { EXPECT_TRUE(records.try_push(record)); },
    };
    auto started = HttpServer::start(options, std::move(handler));
    EXPECT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }

  void handle(Request request, const std::shared_ptr<Exchange>& exchange) {
    if (request.head.path == "/hold" || request.head.path == "/stream") {
      exchange->on_abandoned([this](Abandonment why) { EXPECT_TRUE(abandonments.try_push(why)); });
      if (request.head.path == "/stream") {
        exchange->begin_stream({.content_type = "text/event-stream"});
      }
      EXPECT_TRUE(held.try_push(exchange));
      return;
    }
    exchange->respond({.content_type = "text/plain", .body = request.head.method + " " + request.head.path + " " + request.body});
  }

  /// Runs `use` on the exchange of the oldest request that is held.
  std::shared_ptr<TaskGate> with_held(std::function<void(Exchange&)> use) {
    std::weak_ptr<Exchange> weak = held.pop(kPatience).value();
    auto gate = weak.lock()->gate();
    gate->post([weak, use = std::move(use)] {
      if (const auto exchange = weak.lock()) {
        use(*exchange);
      }
    });
    return gate;
  }

  BoundedQueue<std::weak_ptr<Exchange>> held{64};
  BoundedQueue<Abandonment> abandonments{64};
  BoundedQueue<AccessRecord> records{4096};
  std::unique_ptr<HttpServer> server;
};

}  // namespace deepinfer::server
