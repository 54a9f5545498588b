#include "server/api_error.h"

#include "base/json.h"

namespace deepinfer::server {
namespace {

std::string_view openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
    case 503:
    case 504:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 413:
      return "request_too_large";
    case 500:
      return "api_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return openai_type(status);
  }
}

}  // namespace

ErrorForm error_form(std::string_view path) {
  return path == "/v1/messages" || path.starts_with("/v1/messages/") ? ErrorForm::anthropic : ErrorForm::openai;
}

std::string error_body(ErrorForm form, int status, std::string_view message) {
  using json::Object;
  if (form == ErrorForm::anthropic) {
    return json::to_text(Object{{"type", "error"}, {"error", Object{{"type", anthropic_type(status)}, {"message", message}}}});
  }
  const std::string_view type = openai_type(status);
  return json::to_text(Object{{"error", Object{{"message", message}, {"type", type}, {"param", nullptr}, {"code", type}}}});
}

Response error_response(ErrorForm form, int status, std::string_view message) {
  Response out{.status = status, .body = error_body(form, status, message)};
  if (status == 429 || status == 503) {
    out.headers.emplace_back("Retry-After", "1");
  }
  return out;
}

}  // namespace deepinfer::server
