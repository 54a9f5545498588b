// A reply behind an HTTP exchange: one response, or a stream of events. Ends the work when nobody reads it any more.
#pragma once

#include <memory>
#include <string>

#include "server/exchange.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/response_store.h"
#include "server/routes.h"
#include "server/running_requests.h"
#include "server/served_model.h"
#include "server/turn_store.h"

namespace deepinfer::server {

/// What the generations of one server share; outlives them.
struct GenerationShared {
  TurnStore turns;
  ResponseStore responses;
  RunningRequests running;
  Metrics metrics;
};

struct GenerationContext {
  std::shared_ptr<const ServedModel> model;
  GenerationShared& shared;
  Endpoint endpoint = Endpoint::chat_completions;  ///< one that generates
  std::string owner;                               ///< whose turns and responses the request sees
  bool log_prompts = false;                        ///< the access log shows the prompt
};

/// Starts the request and returns; the exchange is answered from its own executor as tokens arrive. 429 when the owner has too many
/// requests already.
void generate(GenerationContext context, const Request& request, const std::shared_ptr<Exchange>& exchange);

}  // namespace deepinfer::server
