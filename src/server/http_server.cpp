// The one file that sees Boost.Asio and Boost.Beast. Beast parses requests; responses are formatted by http_message.cpp.
// A connection is a chain of coroutines on one strand: read head, admit, read body, handle, send, again.
#include "server/http_server.h"

#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Parser = http::request_parser<http::buffer_body>;
using std::chrono::milliseconds;

constexpr std::size_t kReadBytes = 64 << 10;
/// Bytes of the next requests that are taken while a reply is under way, to notice a client that leaves.
constexpr std::size_t kMaxPipelinedBytes = 64 << 10;
/// After a refusal the peer may still be sending: reading on for a while lets it see the answer instead of a reset.
constexpr std::size_t kMaxDiscardedBytes = 128 << 20;
constexpr milliseconds kDiscardTime{5'000};
constexpr milliseconds kForever{std::chrono::hours(24)};
constexpr milliseconds kAcceptPause{100};
constexpr milliseconds kCancelInterval{50};

auto with(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return out;
}

/// What every connection of one server shares.
struct Shared {
  HttpOptions options;
  HttpHandler handler;
  std::atomic<std::size_t> body_bytes = 0;  ///< of bodies being received
  std::atomic<bool> draining = false;
};

/// A part of Shared::body_bytes, given back on destruction.
class BodyBudget {
 public:
  explicit BodyBudget(Shared& shared) : shared_(shared) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;
  ~BodyBudget() { shared_.body_bytes -= taken_; }

  [[nodiscard]] bool take(std::size_t size) {
    taken_ += size;
    return (shared_.body_bytes += size) <= shared_.options.max_total_body_bytes;
  }

 private:
  Shared& shared_;
  std::size_t taken_ = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared, std::function<void()> on_closed)
      : shared_(shared),
        socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        wake_timer_(socket_.get_executor()),
        buffer_(shared.options.max_header_bytes + kReadBytes + kMaxPipelinedBytes),
        gate_(std::make_shared<TaskGate>([executor = socket_.get_executor()](Task task) { asio::post(executor, std::move(task)); })),
        on_closed_(std::move(on_closed)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    close_gate();
    on_closed_();
  }

  void start() {
    asio::co_spawn(
        socket_.get_executor(), [self = shared_from_this()] { return self->run(); }, asio::detached);
  }
  /// Any thread. The connection closes once it has nothing to do.
  void notice_drain() {
    gate_->post([self = shared_from_this()] {
      if (self->is_idle_) {
        self->socket_.cancel(self->ignored_);
      }
    });
  }
  /// Any thread.
  void abandon() {
    gate_->post([self = shared_from_this()] {
      if (self->exchange_) {
        self->exchange_->abandon(Abandonment::shutting_down);
      }
    });
  }
  /// No executor runs any more, or soon none will: late tasks are dropped.
  void close_gate() { gate_->close(); }

 private:
  enum class Next { serve_another, close, close_after_discarding };

  asio::awaitable<void> run() {
    socket_.set_option(tcp::no_delay(true), ignored_);
    const tcp::endpoint peer = socket_.remote_endpoint(ignored_);
    remote_ = peer.address().to_string();
    Next next = Next::serve_another;
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
      shared_.handler.finished(record_);
    }
    if (next == Next::close_after_discarding) {
      co_await discard_input();
    }
    close_gate();
    socket_.shutdown(tcp::socket::shutdown_both, ignored_);
    socket_.close(ignored_);
  }

  // ---- deadlines and waiting

  /// Cancels what the socket is doing when `time` has passed, again and again until disarm(): a read that consists of several
  /// may be between two of them.
  void arm(milliseconds time) {
    timed_out_ = false;
    deadline_.expires_after(time);
    deadline_.async_wait([self = weak_from_this()](error_code error) {
      const auto connection = self.lock();
      if (!error && connection && connection->deadline_.expiry() <= std::chrono::steady_clock::now()) {
        connection->arm(kCancelInterval);
        connection->timed_out_ = true;
        connection->socket_.cancel(connection->ignored_);
      }
    });
  }
  void disarm() {
    deadline_.expires_at(std::chrono::steady_clock::time_point::max());
    timed_out_ = false;
  }
  void wake() { wake_timer_.cancel(); }
  /// True when woken, false when `time` passed.
  asio::awaitable<bool> wait(milliseconds time) {
    error_code error;
    wake_timer_.expires_after(time);
    co_await wake_timer_.async_wait(with(error));
    co_return error == asio::error::operation_aborted;
  }

  // ---- receiving

  asio::awaitable<bool> wait_for_first_byte() {
    if (buffer_.size() > 0) {
      co_return !shared_.draining;
    }
    if (shared_.draining) {
      co_return false;
    }
    is_idle_ = true;
    arm(shared_.options.idle_timeout);
    error_code error;
    const std::size_t size = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), with(error));
    disarm();
    is_idle_ = false;
    buffer_.commit(size);
    co_return !error;
  }

  asio::awaitable<Next> serve_one() {
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(shared_.options.max_header_bytes));
    parser.body_limit(shared_.options.max_body_bytes);
    error_code error;
    arm(shared_.options.header_timeout);
    co_await http::async_read_header(socket_, buffer_, parser, with(error));
    const bool timed_out = timed_out_;
    disarm();
    if (error) {
      co_return co_await refuse_unreadable(parser, error, timed_out);
    }
    if (!take_head(parser)) {
      co_return co_await refuse(400, "the request target is not a path");
    }
    std::optional<Response> refusal = shared_.handler.admit(record_.head);
    if (refusal) {
      const bool has_body = !parser.is_done();
      const bool kept = co_await send(std::move(*refusal), !has_body);
      co_return has_body ? Next::close_after_discarding : kept ? Next::serve_another : Next::close;
    }
    Request request;
    const std::optional<Next> ended = co_await receive_body(parser, request.body);
    if (ended) {
      co_return *ended;
    }
    request.head = record_.head;
    co_return co_await answer(std::move(request));
  }

  /// Fills record_.head; false when the target has no usable path.
  bool take_head(const Parser& parser) {
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
  asio::awaitable<std::optional<Next>> receive_body(Parser& parser, std::string& body) {
    BodyBudget budget(shared_);
    if (!parser.is_done() && lower_case(record_.head.header("expect")) == "100-continue") {
      const bool sent = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) {
        co_return Next::close;
      }
    }
    arm(shared_.options.body_timeout);
    std::vector<char> piece(parser.is_done() ? 0 : kReadBytes);
    while (!parser.is_done()) {
      auto& target = parser.get().body();
      target.data = piece.data();
      target.size = piece.size();
      target.more = true;
      error_code error;
      co_await http::async_read(socket_, buffer_, parser, with(error));
      if (error && error != http::error::need_buffer) {
        const bool timed_out = timed_out_;
        disarm();
        co_return co_await refuse_unreadable(parser, error, timed_out);
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

  asio::awaitable<Next> refuse_unreadable(const Parser& parser, error_code error, bool timed_out) {
    if (record_.head.method.empty()) {
      record_.head.request_id = sane_request_id({});
    }
    if (timed_out) {
      co_return co_await refuse(408, "the request did not arrive in time");
    }
    if (error == http::error::body_limit) {
      if (record_.head.method.empty()) {
        take_head(parser);
      }
      co_return co_await refuse(413, "the request body is larger than " + std::to_string(shared_.options.max_body_bytes) + " bytes");
    }
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      co_return co_await refuse(431, "the request headers are larger than " + std::to_string(shared_.options.max_header_bytes) + " bytes");
    }
    if (error.category() == http::make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
        error != http::error::partial_message) {
      co_return co_await refuse(400, "malformed HTTP request: " + error.message());
    }
    co_return Next::close;  // the peer left in the middle
  }

  /// An answer of the transport itself; what the peer still sends is not looked at.
  asio::awaitable<Next> refuse(int status, std::string message) {
    co_await send(shared_.handler.refuse(status, record_.head.path, std::move(message)), false);
    co_return Next::close_after_discarding;
  }

  asio::awaitable<void> discard_input() {
    socket_.shutdown(tcp::socket::shutdown_send, ignored_);
    arm(kDiscardTime);
    std::vector<char> bytes(kReadBytes);
    std::size_t discarded = 0;
    error_code error;
    while (!error && !timed_out_ && discarded < kMaxDiscardedBytes) {
      discarded += co_await socket_.async_read_some(asio::buffer(bytes), with(error));
    }
    disarm();
  }

  // ---- answering

  asio::awaitable<Next> answer(Request request) {
    std::weak_ptr<Connection> weak = weak_from_this();
    exchange_ = std::make_shared<Exchange>(gate_, shared_.options.max_unsent_bytes, [weak] {
      if (const auto self = weak.lock()) {
        self->wake();
      }
    });
    const std::shared_ptr<Exchange> exchange = exchange_;
    shared_.handler.handle(std::move(request), exchange);
    if (!exchange->is_ended()) {
      is_watching_ = true;
      asio::co_spawn(
          socket_.get_executor(), [self = shared_from_this()] { return self->watch(); }, asio::detached);
    }
    const bool kept = co_await send_reply(*exchange);
    exchange->abandon(Abandonment::client_gone);  // no effect on a reply that has ended
    co_await stop_watching();
    exchange->detach();
    exchange_.reset();
    record_.details = exchange->details();
    record_.abandonment = exchange->abandonment();
    co_return kept ? Next::serve_another : Next::close;
  }

  /// Reads while a reply is under way: the only way to notice that the client has left.
  asio::awaitable<void> watch() {
    while (!stops_watching_ && buffer_.size() < kMaxPipelinedBytes) {
      error_code error;
      const std::size_t size = co_await socket_.async_read_some(buffer_.prepare(kReadBytes / 16), with(error));
      buffer_.commit(size);
      if (error) {
        if (!stops_watching_ && exchange_) {
          exchange_->abandon(Abandonment::client_gone);
          if (exchange_->is_abandoned()) {  // else the whole reply is on its way
            socket_.cancel(ignored_);
          }
        }
        break;
      }
    }
    is_watching_ = false;
    wake();
  }

  asio::awaitable<void> stop_watching() {
    stops_watching_ = true;
    while (is_watching_) {
      socket_.cancel(ignored_);
      co_await wait(kForever);
    }
    stops_watching_ = false;
  }

  /// False when the connection cannot be used again.
  asio::awaitable<bool> send_reply(Exchange& exchange) {
    while (!exchange.is_begun()) {
      if (exchange.is_abandoned() && exchange.abandonment() != Abandonment::shutting_down) {
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

  asio::awaitable<bool> send_stream(Exchange& exchange) {
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
        co_return is_open&& keeps_alive && !shared_.draining;
      } else if (exchange.is_abandoned() && exchange.abandonment() != Abandonment::shutting_down) {
        co_return false;
      } else {
        const bool woken = co_await wait(shared_.options.keep_alive_interval);
        if (!woken && !exchange.has_unsent()) {
          is_open = co_await write_piece(std::string(kKeepAliveComment));
        }
      }
    }
    co_return false;
  }

  /// A part of a stream's body in the framing of the connection.
  asio::awaitable<bool> write_piece(std::string bytes) {
    if (is_http_1_0_) {
      co_return co_await write_all(std::move(bytes));
    }
    std::string framed;
    append_chunk(framed, bytes);
    co_return co_await write_all(std::move(framed));
  }

  void add_common_headers(Response& response) const {
    const auto& common = shared_.options.headers;
    response.headers.insert(response.headers.end(), common.begin(), common.end());
  }

  asio::awaitable<bool> send(Response response, bool may_keep_alive) {
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

  [[nodiscard]] bool keeps_alive_after_reply() const { return client_keeps_alive_ && !shared_.draining; }

  /// False when the peer takes no byte for the idle timeout, or is gone.
  asio::awaitable<bool> write_all(std::string bytes) {
    std::size_t sent = 0;
    error_code error;
    while (!error && sent < bytes.size()) {
      arm(shared_.options.idle_timeout);
      sent += co_await socket_.async_write_some(asio::buffer(bytes) + sent, with(error));
    }
    disarm();
    co_return !error;
  }

  Shared& shared_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  asio::steady_timer wake_timer_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<TaskGate> gate_;
  std::function<void()> on_closed_;
  std::shared_ptr<Exchange> exchange_;  ///< of the request being answered
  AccessRecord record_;                 ///< of the request being served
  std::string remote_;
  error_code ignored_;  ///< of calls whose failure changes nothing
  bool timed_out_ = false;
  bool is_idle_ = false;
  bool is_watching_ = false;
  bool stops_watching_ = false;
  bool is_http_1_0_ = false;
  bool client_keeps_alive_ = true;
};

}  // namespace

struct HttpServer::State {
  State(HttpOptions options, HttpHandler handler)
      : shared{.options = std::move(options), .handler = std::move(handler)},
        io(shared.options.num_threads),
        acceptor(asio::make_strand(io)),
        accept_pause(acceptor.get_executor()) {}

  asio::awaitable<void> accept_all() {
    while (!shared.draining) {
      error_code error;
      tcp::socket socket(asio::make_strand(io));
      co_await acceptor.async_accept(socket, with(error));
      if (!error) {
        admit(std::move(socket));
      } else if (error != asio::error::operation_aborted) {  // out of descriptors, or the peer was faster
        accept_pause.expires_after(kAcceptPause);
        co_await accept_pause.async_wait(with(error));
      }
    }
  }

  void admit(tcp::socket socket) {
    if (num_connections >= shared.options.max_connections) {
      const Response response = shared.handler.refuse(503, "", "too many connections; try again");
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(response_head(response, sane_request_id({}), {.keep_alive = false}) + response.body), ignored);
      return;
    }
    ++num_connections;
    const std::uint64_t id = next_id++;
    const auto connection = std::make_shared<Connection>(std::move(socket), shared, [this, id] { forget(id); });
    {
      const std::scoped_lock lock(mutex);
      connections.emplace(id, connection);
    }
    connection->start();
  }

  void forget(std::uint64_t id) {
    {
      const std::scoped_lock lock(mutex);
      connections.erase(id);
      --num_connections;
    }
    idle.notify_all();
  }

  std::vector<std::shared_ptr<Connection>> all() {
    const std::scoped_lock lock(mutex);
    std::vector<std::shared_ptr<Connection>> out;
    for (const auto& [id, weak] : connections) {
      if (auto connection = weak.lock()) {
        out.push_back(std::move(connection));
      }
    }
    return out;
  }

  // Declared so that the threads end first and the connections outlive none of what they use.
  Shared shared;
  std::mutex mutex;
  std::condition_variable idle;
  std::map<std::uint64_t, std::weak_ptr<Connection>> connections;
  std::atomic<std::int32_t> num_connections = 0;
  std::uint64_t next_id = 0;  ///< accept_all only
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer accept_pause;
  std::uint16_t port = 0;
  std::vector<std::jthread> threads;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, HttpHandler handler) {
  auto state = std::make_unique<State>(std::move(options), std::move(handler));
  const std::string place = state->shared.options.address + ":" + std::to_string(state->shared.options.port);
  error_code error;
  tcp::resolver resolver(state->io);
  const auto found =
      resolver.resolve(state->shared.options.address, std::to_string(state->shared.options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(ErrorKind::invalid_argument, "'" + state->shared.options.address + "' is no address of this machine");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  state->acceptor.open(endpoint.protocol(), error);
  if (!error) {
    state->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  }
  if (!error) {
    state->acceptor.bind(endpoint, error);
  }
  if (!error) {
    state->acceptor.listen(tcp::acceptor::max_listen_connections, error);
  }
  if (error) {
    return fail(ErrorKind::io, "cannot listen on " + place + ": " + error.message());
  }
  state->port = state->acceptor.local_endpoint().port();
  State* const raw = state.get();
  asio::co_spawn(
      raw->acceptor.get_executor(), [raw] { return raw->accept_all(); }, asio::detached);
  for (std::int32_t i = 0; i < raw->shared.options.num_threads; ++i) {
    raw->threads.emplace_back([raw] { raw->io.run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  state_->io.stop();
  state_->threads.clear();
  for (const auto& connection : state_->all()) {
    connection->close_gate();
  }
}

std::uint16_t HttpServer::port() const { return state_->port; }

std::int32_t HttpServer::num_connections() const { return state_->num_connections; }

void HttpServer::begin_drain() {
  state_->shared.draining = true;
  asio::post(state_->acceptor.get_executor(), [state = state_.get()] {
    error_code ignored;
    state->acceptor.close(ignored);
    state->accept_pause.cancel();
  });
  for (const auto& connection : state_->all()) {
    connection->notice_drain();
  }
}

bool HttpServer::wait_until_idle(Duration timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_for(lock, timeout, [this] { return state_->num_connections == 0; });
}

void HttpServer::abandon_all() {
  for (const auto& connection : state_->all()) {
    connection->abandon();
  }
}

}  // namespace deepinfer::server
