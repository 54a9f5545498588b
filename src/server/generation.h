// A completion behind an HTTP exchange: one response, or a stream of events. Ends the work when nobody reads it any more.
#pragma once

#include <memory>

#include "recipe/convert.h"
#include "server/exchange.h"
#include "server/http_message.h"
#include "server/served_model.h"

namespace deepinfer::server {

/// Starts the request and returns; the exchange is answered from its own executor as tokens arrive.
void generate(std::shared_ptr<const ServedModel> model, recipe::Api api, const Request& request, const std::shared_ptr<Exchange>& exchange);

}  // namespace deepinfer::server
