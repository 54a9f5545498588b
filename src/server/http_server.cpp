// Accepting: one acceptor, a few threads, and the connections that live.
#include "server/http_server.h"

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "server/connection.h"

namespace deepinfer::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{100};

/// Null when no certificate is given.
Result<std::unique_ptr<asio::ssl::context>> load_tls(const HttpOptions& options) {
  using Context = asio::ssl::context;
  if (options.tls_certificate_file.empty()) {
    return nullptr;
  }
  auto context = std::make_unique<Context>(Context::tls_server);
  error_code error;
  context->set_options(Context::default_workarounds | Context::no_tlsv1 | Context::no_tlsv1_1 | Context::no_compression, error);
  context->use_certificate_chain_file(options.tls_certificate_file.string(), error);
  if (error) {
    return fail(ErrorKind::corrupt, "cannot use the TLS certificate " + options.tls_certificate_file.string() + ": " + error.message());
  }
  context->use_private_key_file(options.tls_key_file.string(), Context::pem, error);
  if (error) {
    return fail(ErrorKind::corrupt, "cannot use the TLS key " + options.tls_key_file.string() + ": " + error.message());
  }
  return context;
}

}  // namespace

struct HttpServer::State {
  State(HttpOptions options, HttpHandler handler)
      : context{.options = std::move(options), .handler = std::move(handler)},
        io(context.options.num_threads),
        acceptor(asio::make_strand(io)),
        accept_pause(acceptor.get_executor()) {}

  asio::awaitable<void> accept_all() {
    while (!context.draining) {
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
    if (num_connections >= context.options.max_connections) {
      if (context.tls) {
        return;  // a refusal would need a handshake
      }
      const Response response = context.handler.refuse(503, "", "too many connections; try again");
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(response_head(response, sane_request_id({}), {.keep_alive = false}) + response.body), ignored);
      return;
    }
    ++num_connections;
    const std::uint64_t id = next_id++;
    const auto connection = std::make_shared<Connection>(std::move(socket), context, [this, id] { forget(id); });
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
  ConnectionContext context;
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
  const std::string place = state->context.options.address + ":" + std::to_string(state->context.options.port);
  error_code error;
  auto tls = load_tls(state->context.options);
  if (!tls) {
    return std::unexpected(std::move(tls.error()));
  }
  state->context.tls = std::move(*tls);
  tcp::resolver resolver(state->io);
  const auto found =
      resolver.resolve(state->context.options.address, std::to_string(state->context.options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return fail(ErrorKind::invalid_argument, "'" + state->context.options.address + "' is no address of this machine");
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
  for (std::int32_t i = 0; i < raw->context.options.num_threads; ++i) {
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
  state_->context.draining = true;
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
