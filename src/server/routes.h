// Which endpoint a method and a path mean. The only list of paths.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::server {

enum class Endpoint {
  chat_completions,
  messages,
  count_tokens,
  responses,
  stored_response,
  delete_response,
  cancel_response,
  completions,
  models,
  model,
  tokenize,
  detokenize,
  render,
  health,
  version,
  metrics,
  abort,
  playground,
};

struct Route {
  Endpoint endpoint = Endpoint::health;
  std::string parameter = {};  ///< the id in the path of a model or a response
};

struct Routing {
  std::optional<Route> route;  ///< absent: no such path, or not with this method
  std::string_view allow;      ///< methods of a known path, for the Allow header; empty for an unknown path
};

/// HEAD counts as GET.
[[nodiscard]] Routing find_route(std::string_view method, std::string_view path);

/// Endpoints that answer without an API key and in every phase: health, version, playground.
[[nodiscard]] bool is_public(Endpoint endpoint);

/// "chat", "messages", "responses" or "completions" for endpoints that generate, else "other": for metrics and logs.
[[nodiscard]] std::string_view api_name(Endpoint endpoint);

}  // namespace deepinfer::server
