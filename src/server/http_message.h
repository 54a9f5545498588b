// Requests and responses as plain values, and their bytes on the wire: response heads, chunks, server-sent events.
// No sockets and no HTTP library here; parsing of request bytes is http_server.cpp's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::server {

/// What stands before the body. Names of headers are lower case; values have no blanks around them.
struct RequestHead {
  std::string method = {};  ///< "GET"
  std::string path = {};    ///< without the query, percent-escapes decoded; "/v1/models/nano"
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string remote = {};      ///< address of the peer, for the access log
  std::string request_id = {};  ///< the client's x-request-id when sane, else a fresh one

  /// Value of the first header of that name, empty when there is none.
  [[nodiscard]] std::string_view header(std::string_view lower_case_name) const;
};

struct Request {
  RequestHead head;
  std::string body = {};
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< beyond content type, length, connection and request id
};

/// How a response travels on its connection.
struct Delivery {
  enum class Framing { length, chunked, until_close };
  Framing framing = Framing::length;
  bool keep_alive = true;
};

/// Path of a request target: origin or absolute form, percent-escapes decoded, query and fragment dropped.
/// nullopt when it is no such form, an escape is broken, or the result holds a control character.
[[nodiscard]] std::optional<std::string> path_of_target(std::string_view target);

/// The client's id when it is 1 to 64 characters of [A-Za-z0-9._-], else 32 random hexadecimal digits.
[[nodiscard]] std::string sane_request_id(std::string_view given);

/// Status line and headers up to and including the empty line.
[[nodiscard]] std::string response_head(const Response& response, std::string_view request_id, Delivery delivery);

/// One chunk of the chunked transfer coding. `data` must not be empty: an empty chunk ends the body.
void append_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

/// One server-sent event. `name` may be empty. A line break in `data` becomes another data line.
void append_event(std::string& out, std::string_view name, std::string_view data);
/// A comment line: keeps proxies and clients from giving up while no event is due.
inline constexpr std::string_view kKeepAliveComment = ": keep-alive\n\n";

/// "Not Found" for 404.
[[nodiscard]] std::string_view reason_phrase(int status);

}  // namespace deepinfer::server
