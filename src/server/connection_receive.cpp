// Receiving: the head of a request, the decision whether it is wanted, its body. The one file that sees Beast's HTTP parser.
#include <algorithm>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>
#include <vector>

#include "server/connection.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return out;
}

/// A part of ConnectionContext::body_bytes, given back on destruction.
class BodyBudget {
 public:
  explicit BodyBudget(ConnectionContext& context) : context_(context) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;
  ~BodyBudget() { context_.body_bytes -= taken_; }

  [[nodiscard]] bool take(std::size_t size) {
    taken_ += size;
    return (context_.body_bytes += size) <= context_.options.max_total_body_bytes;
  }

 private:
  ConnectionContext& context_;
  std::size_t taken_ = 0;
};

}  // namespace

struct Connection::Incoming {
  http::request_parser<http::buffer_body> parser;
};

asio::awaitable<Connection::Next> Connection::serve_one() {
  Incoming incoming;
  auto& parser = incoming.parser;
  parser.header_limit(static_cast<std::uint32_t>(context_.options.max_header_bytes));
  parser.body_limit(context_.options.max_body_bytes);
  error_code error;
  arm(context_.options.header_timeout);
  co_await http::async_read_header(stream_, buffer_, parser, with(error));
  const bool timed_out = timed_out_;
  disarm();
  if (error) {
    co_return co_await refuse_unreadable(incoming, error, timed_out);
  }
  if (!take_head(incoming)) {
    co_return co_await refuse(400, "the request target is not a path");
  }
  std::optional<Response> refusal = context_.handler.admit(record_.head);
  if (refusal) {
    const bool has_body = !parser.is_done();
    const bool kept = co_await send(std::move(*refusal), !has_body);
    co_return has_body ? Next::close_after_discarding : kept ? Next::serve_another : Next::close;
  }
  Request request;
  const std::optional<Next> ended = co_await receive_body(incoming, request.body);
  if (ended) {
    co_return *ended;
  }
  request.head = record_.head;
  co_return co_await answer(std::move(request));
}

/// Fills record_.head; false when the target has no usable path.
bool Connection::take_head(const Incoming& incoming) {
  const auto& parser = incoming.parser;
  const auto& message = parser.get();
  RequestHead& head = record_.head;
  head.method = std::string(message.method_string());
  for (const auto& field : message) {
    head.headers.emplace_back(lower_case(std::string_view(field.name_string())), std::string(field.value()));
  }
  head.request_id = sane_request_id(head.header("x-request-id"));
  is_http_1_0_ = message.version() < 11;
  client_keeps_alive_ = parser.is_header_done() && parser.keep_alive();
  std::optional<std::string> path = path_of_target(std::string_view(message.target()));
  head.path = path.value_or("");
  return path.has_value();
}

/// nullopt when `body` is complete.
asio::awaitable<std::optional<Connection::Next>> Connection::receive_body(Incoming& incoming, std::string& body) {
  auto& parser = incoming.parser;
  BodyBudget budget(context_);
  if (!parser.is_done() && lower_case(record_.head.header("expect")) == "100-continue") {
    const bool sent = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) {
      co_return Next::close;
    }
  }
  arm(context_.options.body_timeout);
  std::vector<char> piece(parser.is_done() ? 0 : kReadBytes);
  while (!parser.is_done()) {
    auto& target = parser.get().body();
    target.data = piece.data();
    target.size = piece.size();
    target.more = true;
    error_code error;
    co_await http::async_read(stream_, buffer_, parser, with(error));
    if (error && error != http::error::need_buffer) {
      const bool timed_out = timed_out_;
      disarm();
      co_return co_await refuse_unreadable(incoming, error, timed_out);
    }
    const std::size_t size = piece.size() - target.size;
    if (!budget.take(size)) {
      disarm();
      co_return co_await refuse(503, "the server is receiving too many large requests at once; try again");
    }
    body.append(piece.data(), size);
  }
  disarm();
  record_.num_body_bytes = body.size();
  co_return std::nullopt;
}

asio::awaitable<Connection::Next> Connection::refuse_unreadable(const Incoming& incoming, error_code error, bool timed_out) {
  if (record_.head.method.empty()) {
    record_.head.request_id = sane_request_id({});
  }
  if (timed_out) {
    co_return co_await refuse(408, "the request did not arrive in time");
  }
  if (error == http::error::body_limit) {
    if (record_.head.method.empty()) {
      take_head(incoming);
    }
    co_return co_await refuse(413, "the request body is larger than " + std::to_string(context_.options.max_body_bytes) + " bytes");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_return co_await refuse(431, "the request headers are larger than " + std::to_string(context_.options.max_header_bytes) + " bytes");
  }
  if (error.category() == http::make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
      error != http::error::partial_message) {
    co_return co_await refuse(400, "malformed HTTP request: " + error.message());
  }
  co_return Next::close;  // the peer left in the middle
}

/// An answer of the transport itself; what the peer still sends is not looked at.
asio::awaitable<Connection::Next> Connection::refuse(int status, std::string message) {
  co_await send(context_.handler.refuse(status, record_.head.path, std::move(message)), false);
  co_return Next::close_after_discarding;
}

}  // namespace deepinfer::server
