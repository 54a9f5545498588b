// One connection: a chain of coroutines on one strand that reads a head, admits, reads a body, handles, sends, again.
// Private to the transport: only connection*.cpp and http_server.cpp include this, and only they see Boost.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http_server.h"
#include "server/peer_stream.h"

namespace deepinfer::server {

/// What every connection of one server shares.
struct ConnectionContext {
  HttpOptions options;
  HttpHandler handler;
  std::unique_ptr<boost::asio::ssl::context> tls = nullptr;  ///< null: plain HTTP
  std::atomic<std::size_t> body_bytes = 0;                   ///< of bodies being received
  std::atomic<bool> draining = false;
};

/// Completion token of a coroutine's operation whose error goes to `error`.
inline auto with(boost::system::error_code& error) { return boost::asio::redirect_error(boost::asio::use_awaitable, error); }

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// The socket's executor must be a strand. `on_closed` is called once, on any thread, when nothing of the connection is left.
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context, std::function<void()> on_closed);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  void start();
  /// Any thread. The connection closes once it has nothing to do.
  void notice_drain();
  /// Any thread.
  void abandon();
  /// No executor runs any more, or soon none will: late tasks are dropped.
  void close_gate() { gate_->close(); }

 private:
  enum class Next { serve_another, close, close_after_discarding };
  using Milliseconds = std::chrono::milliseconds;
  struct Incoming;  ///< the parser of one request

  template <class T>
  using Awaitable = boost::asio::awaitable<T>;

  static constexpr std::size_t kReadBytes = 64 << 10;
  /// Bytes of the next requests that are taken while a reply is under way, to notice a client that leaves.
  static constexpr std::size_t kMaxPipelinedBytes = 64 << 10;
  static constexpr Milliseconds kForever{std::chrono::hours(24)};

  // connection.cpp: life, deadlines, waiting
  Awaitable<void> run();
  void set_socket_options();
  Awaitable<bool> shake_hands();
  Awaitable<void> say_goodbye();
  void arm(Milliseconds time);
  void disarm();
  void wake() { wake_timer_.cancel(); }
  Awaitable<bool> wait(Milliseconds time);
  Awaitable<bool> wait_for_first_byte();
  Awaitable<void> discard_input();

  // connection_receive.cpp
  Awaitable<Next> serve_one();
  bool take_head(const Incoming& incoming);
  Awaitable<std::optional<Next>> receive_body(Incoming& incoming, std::string& body);
  Awaitable<Next> refuse_unreadable(const Incoming& incoming, boost::system::error_code error, bool timed_out);
  Awaitable<Next> refuse(int status, std::string message);

  // connection_reply.cpp
  Awaitable<Next> answer(Request request);
  void look_at_exchange();
  void start_reply_deadline();
  Awaitable<void> watch();
  Awaitable<void> stop_watching();
  Awaitable<bool> send_reply(Exchange& exchange);
  Awaitable<bool> send_stream(Exchange& exchange);
  Awaitable<bool> write_piece(std::string bytes);
  void add_common_headers(Response& response) const;
  Awaitable<bool> send(Response response, bool may_keep_alive);
  Awaitable<bool> write_all(std::string bytes);
  [[nodiscard]] bool keeps_alive_after_reply() const { return client_keeps_alive_ && !context_.draining; }

  ConnectionContext& context_;
  PeerStream stream_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer wake_timer_;
  boost::asio::steady_timer reply_timer_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<TaskGate> gate_;
  std::function<void()> on_closed_;
  std::shared_ptr<Exchange> exchange_;  ///< of the request being answered
  AccessRecord record_;                 ///< of the request being served
  std::string remote_;
  boost::system::error_code ignored_;  ///< of calls whose failure changes nothing
  bool timed_out_ = false;
  bool is_idle_ = false;
  bool is_watching_ = false;
  bool stops_watching_ = false;
  bool is_http_1_0_ = false;
  bool client_keeps_alive_ = true;
};

}  // namespace deepinfer::server
