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
    Entry{"/v1/models", "GET", Endpoint::models},
    Entry{"/tokenize", "POST", Endpoint::tokenize},
    Entry{"/detokenize", "POST", Endpoint::detokenize},
    Entry{"/render", "POST", Endpoint::render},
    Entry{"/health", "GET", Endpoint::health},
    Entry{"/version", "GET", Endpoint::version},
    Entry{"/", "GET", Endpoint::playground},
};
constexpr std::string_view kModelPrefix = "/v1/models/";

Routing checked(std::string_view method, std::string_view allowed, Route route) {
  const bool is_allowed = method == allowed || (method == "HEAD" && allowed == "GET");
  return {.route = is_allowed ? std::optional(std::move(route)) : std::nullopt, .allow = allowed};
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
  return {};
}

bool is_public(Endpoint endpoint) {
  return endpoint == Endpoint::health || endpoint == Endpoint::version || endpoint == Endpoint::playground;
}

}  // namespace deepinfer::server
