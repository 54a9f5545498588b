// HTTP/1.1 over TCP: sockets, request parsing, limits and deadlines. Knows no path and no API: that is behind HttpHandler.
// Each connection runs on its own executor (a strand); handlers are called there and must not block for long.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "server/exchange.h"
#include "server/http_message.h"

namespace deepinfer::server {

struct HttpOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 8000;                        ///< 0: any free port, see HttpServer::port()
  std::filesystem::path tls_certificate_file = {};  ///< PEM, the chain of the server's certificate first; empty: plain HTTP
  std::filesystem::path tls_key_file = {};          ///< PEM
  std::int32_t num_threads = 2;
  std::int32_t max_connections = 4096;
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 32 << 20;
  std::size_t max_total_body_bytes = std::size_t{1} << 30;        ///< bodies being received, all connections together
  std::size_t max_unsent_bytes = 1 << 20;                         ///< of one stream; past it the reader is too slow
  std::chrono::milliseconds idle_timeout{75'000};                 ///< between requests, and for a reader that takes no byte
  std::chrono::milliseconds header_timeout{10'000};               ///< from the first byte of a request to the end of its headers
  std::chrono::milliseconds body_timeout{120'000};                ///< from the end of the headers to the end of the body
  std::chrono::milliseconds keep_alive_interval{15'000};          ///< comment line in a stream without data
  std::chrono::milliseconds reply_timeout{0};                     ///< from the end of a request to the end of its reply; 0: none
  std::int32_t send_buffer_bytes = 0;                             ///< of each socket, in the system; 0: what the system chooses
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< of every response
};

/// One finished request, for the access log.
struct AccessRecord {
  RequestHead head;  ///< method and path are empty when the request could not be parsed
  int status = 0;    ///< 0: the client left before a status was sent
  std::size_t num_body_bytes = 0;
  Duration duration{};
  json::Object details;  ///< Exchange::set_details
  std::optional<Abandonment> abandonment;
};

struct HttpHandler {
  /// Called when the headers are there, before any byte of the body is read. A response refuses the request.
  std::function<std::optional<Response>(const RequestHead&)> admit;
  /// Called with the complete request; replies through the exchange, at once or later.
  std::function<void(Request, std::shared_ptr<Exchange>)> handle;
  /// The error body for what the transport itself finds (400, 408, 413, 431, 503). The path may be empty.
  std::function<Response(int status, std::string_view path, std::string message)> refuse;
  /// Called once per request, on some I/O thread.
  std::function<void(const AccessRecord&)> finished;
};

class HttpServer {
 public:
  /// Binds and starts to accept. Errors: io (address in use, no permission), invalid_argument (no such address), corrupt (a file for
  /// TLS cannot be used).
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Drops every connection.
  ~HttpServer();

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::int32_t num_connections() const;
  /// No new connections; idle ones close, busy ones close after their reply. Returns at once.
  void begin_drain();
  /// Waits until no connection is left; false when `timeout` passes first.
  [[nodiscard]] bool wait_until_idle(Duration timeout);
  /// Tells every unfinished exchange that the server stops (Abandonment::shutting_down).
  void abandon_all();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::server
