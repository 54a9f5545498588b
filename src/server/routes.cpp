#include "server/routes.h"

#include <array>
#include <utility>

namespace deepinfer::server {
namespace {

struct Entry {
  std::string_view path;
  std::string_view method;
  Endpoint endpoint;
};

constexpr std::array kEntries = {
    Entry{"/v1/chat/completions", "POST", Endpoint::chat_completions},
    Entry{"/v1/messages", "POST", Endpoint::messages},
    Entry{"/v1/messages/count_tokens", "POST", Endpoint::count_tokens},
    Entry{"/v1/responses", "POST", Endpoint::responses},
    Entry{"/v1/completions", "POST", Endpoint::completions},
    Entry{"/v1/models", "GET", Endpoint::models},
    Entry{"/tokenize", "POST", Endpoint::tokenize},
    Entry{"/detokenize", "POST", Endpoint::detokenize},
    Entry{"/render", "POST", Endpoint::render},
    Entry{"/health", "GET", Endpoint::health},
    Entry{"/version", "GET", Endpoint::version},
    Entry{"/metrics", "GET", Endpoint::metrics},
    Entry{"/abort", "POST", Endpoint::abort},
    Entry{"/", "GET", Endpoint::playground},
};
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kResponsePrefix = "/v1/responses/";
constexpr std::string_view kCancelSuffix = "/cancel";

Routing checked(std::string_view method, std::string_view allowed, Route route) {
  const bool is_allowed = method == allowed || (method == "HEAD" && allowed == "GET");
  return {.route = is_allowed ? std::optional(std::move(route)) : std::nullopt, .allow = allowed};
}

/// `rest` is what follows /v1/responses/.
Routing find_response_route(std::string_view method, std::string_view rest) {
  if (rest.ends_with(kCancelSuffix)) {
    const std::string_view id = rest.substr(0, rest.size() - kCancelSuffix.size());
    return id.empty() ? Routing{} : checked(method, "POST", {.endpoint = Endpoint::cancel_response, .parameter = std::string(id)});
  }
  if (method == "DELETE") {
    return checked(method, "DELETE", {.endpoint = Endpoint::delete_response, .parameter = std::string(rest)});
  }
  Routing out = checked(method, "GET", {.endpoint = Endpoint::stored_response, .parameter = std::string(rest)});
  out.allow = "GET, DELETE";
  return out;
}

}  // namespace

Routing find_route(std::string_view method, std::string_view path) {
  for (const Entry& entry : kEntries) {
    if (entry.path == path) {
      return checked(method, entry.method, {.endpoint = entry.endpoint});
    }
  }
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) {
    return checked(method, "GET", {.endpoint = Endpoint::model, .parameter = std::string(path.substr(kModelPrefix.size()))});
  }
  if (path.starts_with(kResponsePrefix) && path.size() > kResponsePrefix.size()) {
    return find_response_route(method, path.substr(kResponsePrefix.size()));
  }
  return {};
}

bool is_public(Endpoint endpoint) {
  return endpoint == Endpoint::health || endpoint == Endpoint::version || endpoint == Endpoint::playground;
}

std::string_view api_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::chat_completions:
      return "chat";
    case Endpoint::messages:
      return "messages";
    case Endpoint::responses:
      return "responses";
    case Endpoint::completions:
      return "completions";
    default:
      return "other";
  }
}

}  // namespace deepinfer::server
