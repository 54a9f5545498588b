// The reply to one request: filled by an endpoint, sent by the connection. The seam between the HTTP library and everything else.
// An exchange is used on the connection's executor only, so nothing here locks except the way to that executor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/http_message.h"

namespace deepinfer::server {

using Task = std::move_only_function<void()>;

/// A way to an executor that other threads may keep longer than the executor lives.
class TaskGate {
 public:
  explicit TaskGate(std::function<void(Task)> post) : post_(std::move(post)) {}

  /// Runs `task` on the executor, later. After close() the task is dropped. Any thread; does not block on the task.
  void post(Task task);
  /// From now on tasks are dropped. Returns when no post() is under way.
  void close();

 private:
  std::mutex mutex_;
  std::function<void(Task)> post_;  ///< empty: closed
};

/// Why nobody waits for the rest of a reply. Behind the first two nobody reads any more, behind the others an error may still be sent.
enum class Abandonment {
  client_gone,      ///< the peer closed the connection
  reader_too_slow,  ///< more unread bytes than the limit
  shutting_down,    ///< the server stops
  out_of_time,      ///< the reply took longer than a request may
  aborted,          ///< an administrator ended it
};

class Exchange {
 public:
  /// `wake`: the connection should look at this exchange again; called on the executor.
  Exchange(std::shared_ptr<TaskGate> gate, std::size_t max_unsent_bytes, std::function<void()> wake);

  // For endpoints.

  /// The whole reply. Ignored when the reply was begun or abandoned before.
  void respond(Response response);
  /// Status and headers now, body bytes with write(), then end().
  void begin_stream(Response head);
  /// Body bytes of a stream. Past the limit of unsent bytes the exchange is abandoned.
  void write(std::string_view bytes);
  void end();
  /// Called at most once, on the executor, when the rest of the reply is of no use. Unless is_deserted(), the reply may still be
  /// given or ended.
  void on_abandoned(std::move_only_function<void(Abandonment)> handler);
  /// The way to the connection's executor for other threads. Tasks must not own the exchange: a thread that drops the last owner
  /// would run its destructor.
  [[nodiscard]] const std::shared_ptr<TaskGate>& gate() const { return gate_; }
  [[nodiscard]] bool is_abandoned() const { return abandoned_.has_value(); }
  /// Nobody reads what is written.
  [[nodiscard]] bool is_deserted() const { return abandoned_ == Abandonment::client_gone || abandoned_ == Abandonment::reader_too_slow; }
  /// What the endpoint knows about the request, for the access log: {"prompt": 12, "finish": "stop"}.
  void set_details(json::Object details) { details_ = std::move(details); }

  // For the connection.

  [[nodiscard]] std::optional<Response> take_response();
  [[nodiscard]] std::optional<Response> take_stream_head();
  [[nodiscard]] std::string take_unsent();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  [[nodiscard]] bool is_ended() const { return ended_; }
  [[nodiscard]] bool is_begun() const { return begun_; }
  void abandon(Abandonment why);
  /// The connection is gone: wake() must not be called any more.
  void detach() { wake_ = nullptr; }
  [[nodiscard]] const json::Object& details() const { return details_; }
  [[nodiscard]] std::optional<Abandonment> abandonment() const { return abandoned_; }

 private:
  [[nodiscard]] bool is_writable() const;
  void wake() const;

  std::shared_ptr<TaskGate> gate_;
  std::size_t max_unsent_bytes_;
  std::function<void()> wake_;
  std::move_only_function<void(Abandonment)> on_abandoned_;
  std::optional<Abandonment> abandoned_;
  std::optional<Response> response_;
  std::optional<Response> stream_head_;
  std::string unsent_;
  json::Object details_;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace deepinfer::server
