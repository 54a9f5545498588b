// Answering: the handler's exchange, sent as one response or piece by piece, while the peer is watched.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "server/connection.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

asio::awaitable<Connection::Next> Connection::answer(Request request) {
  std::weak_ptr<Connection> weak = weak_from_this();
  exchange_ = std::make_shared<Exchange>(gate_, context_.options.max_unsent_bytes, [weak] {
    if (const auto self = weak.lock()) {
      self->look_at_exchange();
    }
  });
  const std::shared_ptr<Exchange> exchange = exchange_;
  context_.handler.handle(std::move(request), exchange);
  start_reply_deadline();
  if (!exchange->is_ended()) {
    is_watching_ = true;
    asio::co_spawn(
        stream_.get_executor(), [self = shared_from_this()] { return self->watch(); }, asio::detached);
  }
  const bool kept = co_await send_reply(*exchange);
  exchange->abandon(Abandonment::client_gone);  // no effect on a reply that has ended
  co_await stop_watching();
  reply_timer_.cancel();
  exchange->detach();
  exchange_.reset();
  record_.details = exchange->details();
  record_.abandonment = exchange->abandonment();
  co_return kept ? Next::serve_another : Next::close;
}

/// A reader that is too slow is not waited for: what is being sent to it ends too.
void Connection::look_at_exchange() {
  if (exchange_ && exchange_->is_deserted()) {
    stream_.socket().cancel(ignored_);
  }
  wake();
}

void Connection::start_reply_deadline() {
  if (context_.options.reply_timeout.count() == 0 || exchange_->is_ended()) {
    return;
  }
  reply_timer_.expires_after(context_.options.reply_timeout);
  reply_timer_.async_wait([weak = std::weak_ptr<Exchange>(exchange_)](error_code error) {
    const auto exchange = weak.lock();
    if (!error && exchange) {
      exchange->abandon(Abandonment::out_of_time);
    }
  });
}

/// Reads while a reply is under way: the only way to notice that the client has left.
asio::awaitable<void> Connection::watch() {
  while (!stops_watching_ && buffer_.size() < kMaxPipelinedBytes) {
    error_code error;
    const std::size_t size = co_await stream_.async_read_some(buffer_.prepare(kReadBytes / 16), with(error));
    buffer_.commit(size);
    if (error) {
      if (!stops_watching_ && exchange_) {
        exchange_->abandon(Abandonment::client_gone);
        if (exchange_->is_abandoned()) {  // else the whole reply is on its way
          stream_.socket().cancel(ignored_);
        }
      }
      break;
    }
  }
  is_watching_ = false;
  wake();
}

asio::awaitable<void> Connection::stop_watching() {
  stops_watching_ = true;
  while (is_watching_) {
    stream_.socket().cancel(ignored_);
    co_await wait(kForever);
  }
  stops_watching_ = false;
}

/// False when the connection cannot be used again.
asio::awaitable<bool> Connection::send_reply(Exchange& exchange) {
  while (!exchange.is_begun()) {
    if (exchange.is_deserted()) {
      co_return false;
    }
    co_await wait(kForever);
  }
  std::optional<Response> response = exchange.take_response();
  if (response) {
    co_return co_await send(std::move(*response), true);
  }
  co_return co_await send_stream(exchange);
}

asio::awaitable<bool> Connection::send_stream(Exchange& exchange) {
  Response head = exchange.take_stream_head().value_or(Response{});
  add_common_headers(head);
  const bool keeps_alive = keeps_alive_after_reply() && !is_http_1_0_;
  const auto framing = is_http_1_0_ ? Delivery::Framing::until_close : Delivery::Framing::chunked;
  record_.status = head.status;
  bool is_open = co_await write_all(response_head(head, record_.head.request_id, {.framing = framing, .keep_alive = keeps_alive}));
  while (is_open) {
    if (exchange.has_unsent()) {
      is_open = co_await write_piece(exchange.take_unsent());
    } else if (exchange.is_ended()) {
      if (!is_http_1_0_) {
        is_open = co_await write_all(std::string(kLastChunk));
      }
      co_return is_open&& keeps_alive && !context_.draining;
    } else if (exchange.is_deserted()) {
      co_return false;
    } else {
      const bool woken = co_await wait(context_.options.keep_alive_interval);
      if (!woken && !exchange.has_unsent()) {
        is_open = co_await write_piece(std::string(kKeepAliveComment));
      }
    }
  }
  co_return false;
}

/// A part of a stream's body in the framing of the connection.
asio::awaitable<bool> Connection::write_piece(std::string bytes) {
  if (is_http_1_0_) {
    co_return co_await write_all(std::move(bytes));
  }
  std::string framed;
  append_chunk(framed, bytes);
  co_return co_await write_all(std::move(framed));
}

void Connection::add_common_headers(Response& response) const {
  const auto& common = context_.options.headers;
  response.headers.insert(response.headers.end(), common.begin(), common.end());
}

asio::awaitable<bool> Connection::send(Response response, bool may_keep_alive) {
  add_common_headers(response);
  const bool keeps_alive = may_keep_alive && keeps_alive_after_reply();
  record_.status = response.status;
  std::string bytes = response_head(response, record_.head.request_id, {.keep_alive = keeps_alive});
  if (record_.head.method != "HEAD") {
    bytes += response.body;
  }
  const bool sent = co_await write_all(std::move(bytes));
  co_return sent&& keeps_alive;
}

/// False when the peer takes no byte for the idle timeout, or is gone.
asio::awaitable<bool> Connection::write_all(std::string bytes) {
  std::size_t sent = 0;
  error_code error;
  while (!error && sent < bytes.size()) {
    arm(context_.options.idle_timeout);
    sent += co_await stream_.async_write_some(asio::buffer(bytes) + sent, with(error));
  }
  disarm();
  co_return !error;
}

}  // namespace deepinfer::server
