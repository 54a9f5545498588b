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
  models,
  model,
  tokenize,
  detokenize,
  render,
  health,
  version,
  playground,
};

struct Route {
  Endpoint endpoint = Endpoint::health;
  std::string parameter = {};  ///< Endpoint::model: the id in the path
};

struct Routing {
  std::optional<Route> route;  ///< absent: no such path, or not with this method
  std::string_view allow;      ///< methods of a known path, for the Allow header; empty for an unknown path
};

/// HEAD counts as GET.
[[nodiscard]] Routing find_route(std::string_view method, std::string_view path);

/// Endpoints that answer without an API key: health, version, playground.
[[nodiscard]] bool is_public(Endpoint endpoint);

}  // namespace deepinfer::server
