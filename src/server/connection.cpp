// Life of a connection: from its start to its close, its deadlines and how it waits.
#include "server/connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>
#include <vector>

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// After a refusal the peer may still be sending: reading on for a while lets it see the answer instead of a reset.
constexpr std::size_t kMaxDiscardedBytes = 128 << 20;
constexpr std::chrono::milliseconds kDiscardTime{5'000};
constexpr std::chrono::milliseconds kCancelInterval{50};
constexpr std::chrono::milliseconds kGoodbyeTime{1'000};

}  // namespace

Connection::Connection(tcp::socket socket, ConnectionContext& context, std::function<void()> on_closed)
    : context_(context),
      stream_(std::move(socket), context.tls.get()),
      deadline_(stream_.get_executor()),
      wake_timer_(stream_.get_executor()),
      reply_timer_(stream_.get_executor()),
      buffer_(context.options.max_header_bytes + kReadBytes + kMaxPipelinedBytes),
      gate_(std::make_shared<TaskGate>([executor = stream_.get_executor()](Task task) { asio::post(executor, std::move(task)); })),
      on_closed_(std::move(on_closed)) {}

Connection::~Connection() {
  close_gate();
  on_closed_();
}

void Connection::start() {
  asio::co_spawn(
      stream_.get_executor(), [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void Connection::notice_drain() {
  gate_->post([self = shared_from_this()] {
    if (self->is_idle_) {
      self->stream_.socket().cancel(self->ignored_);
    }
  });
}

void Connection::abandon() {
  gate_->post([self = shared_from_this()] {
    if (self->exchange_) {
      self->exchange_->abandon(Abandonment::shutting_down);
    }
  });
}

void Connection::set_socket_options() {
  stream_.socket().set_option(tcp::no_delay(true), ignored_);
  if (context_.options.send_buffer_bytes > 0) {
    stream_.socket().set_option(tcp::socket::send_buffer_size(context_.options.send_buffer_bytes), ignored_);
  }
}

asio::awaitable<void> Connection::run() {
  set_socket_options();
  const bool is_ready = !stream_.is_tls() || co_await shake_hands();
  const tcp::endpoint peer = stream_.socket().remote_endpoint(ignored_);
  remote_ = peer.address().to_string();
  Next next = is_ready ? Next::serve_another : Next::close;
  while (next == Next::serve_another) {
    const bool has_request = co_await wait_for_first_byte();
    if (!has_request) {
      break;
    }
    record_ = AccessRecord{};
    record_.head.remote = remote_;
    const auto begin = std::chrono::steady_clock::now();
    next = co_await serve_one();
    record_.duration = std::chrono::steady_clock::now() - begin;
    context_.handler.finished(record_);
  }
  if (next == Next::close_after_discarding) {
    co_await discard_input();
  }
  close_gate();
  if (stream_.is_tls() && is_ready) {
    co_await say_goodbye();
  }
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored_);
  stream_.socket().close(ignored_);
}

asio::awaitable<bool> Connection::shake_hands() {
  error_code error;
  arm(context_.options.header_timeout);
  co_await stream_.async_handshake(with(error));
  disarm();
  co_return !error;
}

/// Tells the peer that nothing was cut off.
asio::awaitable<void> Connection::say_goodbye() {
  arm(kGoodbyeTime);
  co_await stream_.async_shutdown(with(ignored_));
  disarm();
}

/// Cancels what the socket is doing when `time` has passed, again and again until disarm(): a read that consists of several
/// may be between two of them.
void Connection::arm(Milliseconds time) {
  timed_out_ = false;
  deadline_.expires_after(time);
  deadline_.async_wait([self = weak_from_this()](error_code error) {
    const auto connection = self.lock();
    if (!error && connection && connection->deadline_.expiry() <= std::chrono::steady_clock::now()) {
      connection->arm(kCancelInterval);
      connection->timed_out_ = true;
      connection->stream_.socket().cancel(connection->ignored_);
    }
  });
}

void Connection::disarm() {
  deadline_.expires_at(std::chrono::steady_clock::time_point::max());
  timed_out_ = false;
}

/// True when woken, false when `time` passed.
asio::awaitable<bool> Connection::wait(Milliseconds time) {
  error_code error;
  wake_timer_.expires_after(time);
  co_await wake_timer_.async_wait(with(error));
  co_return error == asio::error::operation_aborted;
}

asio::awaitable<bool> Connection::wait_for_first_byte() {
  if (buffer_.size() > 0) {
    co_return !context_.draining;
  }
  if (context_.draining) {
    co_return false;
  }
  is_idle_ = true;
  arm(context_.options.idle_timeout);
  error_code error;
  const std::size_t size = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), with(error));
  disarm();
  is_idle_ = false;
  buffer_.commit(size);
  co_return !error;
}

asio::awaitable<void> Connection::discard_input() {
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored_);
  arm(kDiscardTime);
  std::vector<char> bytes(kReadBytes);
  std::size_t discarded = 0;
  error_code error;
  while (!error && !timed_out_ && discarded < kMaxDiscardedBytes) {
    discarded += co_await stream_.async_read_some(asio::buffer(bytes), with(error));
  }
  disarm();
}

}  // namespace deepinfer::server
