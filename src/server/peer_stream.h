// The bytes of one connection, plain or through TLS, for code that need not know which. Private to the transport.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <utility>

namespace deepinfer::server {

/// Models what Asio calls an asynchronous read and write stream.
class PeerStream {
 public:
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  /// `tls`: null for plain bytes; must outlive the stream.
  PeerStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) {
      tls_.emplace(socket_, *tls);
    }
  }
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  [[nodiscard]] executor_type get_executor() { return socket_.get_executor(); }
  /// For options, addresses, cancelling and closing; not for bytes.
  [[nodiscard]] boost::asio::ip::tcp::socket& socket() { return socket_; }
  [[nodiscard]] bool is_tls() const { return tls_.has_value(); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return tls_ ? tls_->async_read_some(buffers, std::forward<Token>(token)) : socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return tls_ ? tls_->async_write_some(buffers, std::forward<Token>(token))
                : socket_.async_write_some(buffers, std::forward<Token>(token));
  }
  /// Only when is_tls().
  template <class Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  /// Only when is_tls(): says goodbye to the peer.
  template <class Token>
  auto async_shutdown(Token&& token) {
    return tls_->async_shutdown(std::forward<Token>(token));
  }

 private:
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
};

}  // namespace deepinfer::server
