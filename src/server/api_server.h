// The server as a whole: routes requests to endpoints, checks keys, and goes through the phases loading, ready, draining.
// Sockets are HttpServer's, the way of one completion is generation.h's.
#pragma once

#include <chrono>
#include <cstdint>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/generation.h"
#include "server/http_server.h"
#include "server/routes.h"
#include "server/served_model.h"

namespace deepinfer::server {

struct ApiServerOptions {
  HttpOptions http;
  std::optional<ApiKeys> keys;            ///< absent: everybody on this machine; the address must then be a loopback one
  std::optional<ApiKeys> admin_keys;      ///< accepted everywhere, and by POST /abort; absent: abort needs a server without keys
  std::int32_t max_requests_per_key = 0;  ///< running at once, of each key; 0: no bound
  TurnStoreLimits turns;
  ResponseStoreLimits responses;
  std::string cors_origin;     ///< a web page's origin that may use the API, "*" for any; empty: none
  bool has_playground = true;  ///< GET /
  LogFormat log_format = LogFormat::text;
  bool log_prompts = false;  ///< lines of generations end with the prompt
  std::chrono::milliseconds watchdog{30'000};  ///< pending work without a step for this long is unhealthy
  std::string version;                         ///< for /version
  std::string commit;
  Log log;
};

enum class Phase { loading, ready, draining };

class ApiServer {
 public:
  /// Listens at once, in phase loading: only health, version and the playground answer.
  /// Errors: those of HttpServer::start; invalid_argument when the address is reachable from outside and there are no keys.
  static Result<std::unique_ptr<ApiServer>> start(ApiServerOptions options);
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;
  ~ApiServer();

  [[nodiscard]] std::uint16_t port() const { return http_->port(); }
  /// Phase ready: requests are answered by `model`.
  void serve(std::shared_ptr<const ServedModel> model);
  /// New keys for the next requests; only for a server that has keys.
  void replace_keys(ApiKeys keys);
  /// Phase draining: no new connections; running requests get `timeout` to finish, then an error. Returns when all are gone.
  void drain(Duration timeout);

 private:
  explicit ApiServer(ApiServerOptions options);
  [[nodiscard]] std::optional<Response> admit(const RequestHead& head) const;
  [[nodiscard]] std::optional<Response> refuse_browser(const RequestHead& head) const;
  [[nodiscard]] std::optional<Response> refuse_key(const RequestHead& head, Endpoint endpoint) const;
  void handle(Request request, const std::shared_ptr<Exchange>& exchange) const;
  [[nodiscard]] Response answer(const Route& route, const ServedModel* model, const Request& request) const;
  [[nodiscard]] Response answer_about_response(const Route& route, const std::string& owner) const;
  [[nodiscard]] Response abort(const Request& request) const;
  [[nodiscard]] Response metrics(const ServedModel* model) const;
  [[nodiscard]] std::string owner(const RequestHead& head) const;
  void finish(const AccessRecord& record) const;
  void warn_of_drafter() const;
  [[nodiscard]] Response health(const ServedModel* model) const;
  [[nodiscard]] Response version(const ServedModel* model) const;
  [[nodiscard]] std::shared_ptr<const ServedModel> model() const;

  ApiServerOptions options_;
  std::int64_t started_unix_time_;
  std::unique_ptr<GenerationShared> shared_;
  mutable std::atomic<bool> has_warned_of_drafter_ = false;
  mutable std::mutex mutex_;  ///< guards the three below
  Phase phase_ = Phase::loading;
  std::shared_ptr<const ServedModel> model_;
  std::shared_ptr<const ApiKeys> keys_;  ///< null: none needed
  std::unique_ptr<HttpServer> http_;     ///< last: its threads use everything above
};

/// Whether only this machine can reach `address`: 127.0.0.0/8, ::1 or "localhost".
[[nodiscard]] bool is_loopback(std::string_view address);

}  // namespace deepinfer::server
