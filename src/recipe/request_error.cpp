#include "recipe/request_error.h"

#include <utility>

namespace deepinfer::recipe {

namespace {

std::string error_body(std::string_view message) {
  std::string out = R"({"error":{"message":)";
  json::append_string(out, message);
  out += R"(,"type":"invalid_request_error","param":null,"code":"invalid_request_error"}})";
  return out;
}

}  // namespace

std::unexpected<RequestError> reject(std::string message) {
  RequestError error{.stage = RequestError::Stage::convert, .status = 400, .body = error_body(message), .message = {}};
  error.message = std::move(message);
  return std::unexpected(std::move(error));
}

RequestError unreadable(RequestError::Stage stage, std::string_view problem) {
  std::string message(stage == RequestError::Stage::json ? "invalid JSON request: " : "invalid request body: ");
  message += problem;
  RequestError error{.stage = stage, .status = 400, .body = error_body(message), .message = {}};
  error.message = std::move(message);
  return error;
}

}  // namespace deepinfer::recipe
