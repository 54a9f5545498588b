// A blocking HTTP client on raw POSIX sockets: tests decide about every byte, also about wrong ones. Never waits longer than 10 s.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace deepinfer::server {

struct ClientResponse {
  int status = 0;    ///< 0: the connection ended before a status line
  std::string head;  ///< lower-cased
  std::string body;  ///< chunks joined

  [[nodiscard]] std::string header(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) {
      return {};
    }
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class LoopbackClient {
 public:
  /// `receive_buffer_bytes`: in the system, 0 for what it chooses. Set before the connection is made, so that it bounds the window.
  explicit LoopbackClient(std::uint16_t port, int receive_buffer_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    constexpr int kSeconds = 10;
    const timeval time{.tv_sec = kSeconds, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  LoopbackClient(const LoopbackClient&) = delete;
  LoopbackClient& operator=(const LoopbackClient&) = delete;
  ~LoopbackClient() { close(); }

  [[nodiscard]] bool is_connected() const { return is_connected_; }
  void close() {
    if (socket_ >= 0) {
      ::close(std::exchange(socket_, -1));
    }
  }
  /// False when the peer does not take the bytes.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  bool request(std::string_view method, std::string_view path, std::string_view body = {}, std::string_view more_headers = {}) {
    std::string bytes = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(more_headers);
    if (method == "POST") {
      bytes += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    }
    return send(bytes + "\r\n" + std::string(body));
  }

  /// Whatever the peer sends next; empty at the end of the connection or after 10 s.
  std::string receive_some() {
    char bytes[16384];
    const ssize_t size = ::recv(socket_, bytes, sizeof bytes, 0);
    return size > 0 ? std::string(bytes, static_cast<std::size_t>(size)) : std::string();
  }

  /// Reads on until `text` was received; false when the connection ends first. What was read stays for response().
  bool receive_until(std::string_view text) {
    while (unread_.find(text) == std::string::npos) {
      const std::string more = receive_some();
      if (more.empty()) {
        return false;
      }
      unread_ += more;
    }
    return true;
  }

  /// One complete response. `to_head`: the request was HEAD, no body follows.
  ClientResponse response(std::string_view method = "POST") {
    ClientResponse out;
    if (!receive_until("\r\n\r\n")) {
      return out;
    }
    const std::size_t head_end = unread_.find("\r\n\r\n");
    out.head = unread_.substr(0, head_end + 2);
    std::ranges::transform(out.head, out.head.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    unread_.erase(0, head_end + 4);
    out.status = std::atoi(out.head.c_str() + out.head.find(' '));
    if (method == "HEAD" || out.status == 204) {
      return out;
    }
    if (out.header("transfer-encoding") == "chunked") {
      read_chunks(out.body);
    } else if (const std::string length = out.header("content-length"); !length.empty()) {
      out.body = take(std::strtoul(length.c_str(), nullptr, 10)).value_or("");
    } else {
      out.body = std::exchange(unread_, {});
      for (std::string more = receive_some(); !more.empty(); more = receive_some()) {
        out.body += more;
      }
    }
    return out;
  }

  ClientResponse exchange(std::string_view method, std::string_view path, std::string_view body = {}, std::string_view more_headers = {}) {
    request(method, path, body, more_headers);
    return response(method);
  }

  /// What has arrived and was not taken by response().
  [[nodiscard]] const std::string& unread() const { return unread_; }

  /// True when the peer has closed the connection and sent nothing more.
  bool is_closed_by_peer() { return unread_.empty() && receive_some().empty(); }

 private:
  std::optional<std::string> take(std::size_t size) {
    while (unread_.size() < size) {
      const std::string more = receive_some();
      if (more.empty()) {
        return std::nullopt;
      }
      unread_ += more;
    }
    std::string out = unread_.substr(0, size);
    unread_.erase(0, size);
    return out;
  }

  void read_chunks(std::string& body) {
    while (receive_until("\r\n")) {
      const std::size_t size = std::strtoul(unread_.c_str(), nullptr, 16);
      unread_.erase(0, unread_.find("\r\n") + 2);
      const std::optional<std::string> chunk = take(size + 2);
      if (!chunk || size == 0) {
        return;
      }
      body += chunk->substr(0, size);
    }
  }

  int socket_;
  bool is_connected_ = false;
  std::string unread_;
};

}  // namespace deepinfer::server
