#include "server/api_server.h"

#include <utility>

#include "base/json.h"
#include "server/api_error.h"
#include "server/endpoints.h"
#include "server/generation.h"
#include "server/playground.h"

namespace deepinfer::server {
namespace {

/// How long an exchange may take to say goodbye after the drain time is over.
constexpr std::chrono::seconds kFarewellTime{2};

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::loading:
      return "loading";
    case Phase::ready:
      return "ready";
    case Phase::draining:
      return "draining";
  }
  return "";
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// "localhost:8000" → "localhost", "[::1]:8000" → "::1"
std::string_view host_name(std::string_view authority) {
  if (authority.starts_with('[')) {
    return authority.substr(1, std::min(authority.find(']'), authority.size()) - 1);
  }
  return authority.substr(0, authority.find(':'));
}

/// "http://localhost:8000" → "localhost:8000"
std::string_view authority_of(std::string_view origin) {
  const std::size_t scheme_end = origin.find("://");
  return scheme_end == std::string_view::npos ? std::string_view() : origin.substr(scheme_end + 3);
}

Response preflight() {
  return {.status = 204,
          .content_type = "",
          .body = {},
          .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers", "authorization, content-type, x-api-key, anthropic-version, x-request-id"},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace

bool is_loopback(std::string_view address) { return address == "localhost" || address == "::1" || address.starts_with("127."); }

ApiServer::ApiServer(ApiServerOptions options) : options_(std::move(options)), started_unix_time_(unix_time()) {
  if (options_.keys) {
    keys_ = std::make_shared<const ApiKeys>(*options_.keys);
  }
}

ApiServer::~ApiServer() = default;

Result<std::unique_ptr<ApiServer>> ApiServer::start(ApiServerOptions options) {
  if (!options.keys && !is_loopback(options.http.address)) {
    return fail(ErrorKind::invalid_argument,
                "listening on " + options.http.address + " needs API keys; without them the server only listens on a loopback address");
  }
  if (!options.cors_origin.empty()) {
    options.http.headers = {{"Access-Control-Allow-Origin", options.cors_origin}, {"Vary", "Origin"}};
  }
  auto server = std::unique_ptr<ApiServer>(new ApiServer(std::move(options)));
  ApiServer* const self = server.get();
  HttpHandler handler{
      .admit = [self](const RequestHead& head) { return self->admit(head); },
      .handle = [self](Request request, const std::shared_ptr<Exchange>& exchange) { self->handle(std::move(request), exchange); },
      .refuse = [](int status, std::string_view path,
                   const std::string& message) { return error_response(error_form(path), status, message); },
      .finished = [self](const AccessRecord& record) { self->options_.log.info(access_line(record, self->options_.log_format)); },
  };
  auto http = HttpServer::start(self->options_.http, std::move(handler));
  if (!http) {
    return std::unexpected(std::move(http.error()));
  }
  server->http_ = std::move(*http);
  return server;
}

void ApiServer::serve(std::shared_ptr<const ServedModel> model) {
  const std::scoped_lock lock(mutex_);
  model_ = std::move(model);
  if (phase_ == Phase::loading) {
    phase_ = Phase::ready;
  }
}

void ApiServer::replace_keys(ApiKeys keys) {
  const std::scoped_lock lock(mutex_);
  keys_ = std::make_shared<const ApiKeys>(std::move(keys));
}

void ApiServer::drain(Duration timeout) {
  {
    const std::scoped_lock lock(mutex_);
    phase_ = Phase::draining;
  }
  http_->begin_drain();
  if (!http_->wait_until_idle(timeout)) {
    http_->abandon_all();
    if (!http_->wait_until_idle(kFarewellTime)) {
      options_.log.warning("some connections did not close in time");
    }
  }
}

std::shared_ptr<const ServedModel> ApiServer::model() const {
  const std::scoped_lock lock(mutex_);
  return model_;
}

/// Without keys every web page that the user opens could talk to this server: only pages of this server itself may.
std::optional<Response> ApiServer::refuse_browser(const RequestHead& head) const {
  const std::string_view origin = head.header("origin");
  const std::string_view host = head.header("host");
  const bool is_allowed_origin =
      origin.empty() || options_.cors_origin == "*" || origin == options_.cors_origin || authority_of(origin) == host;
  if (!is_allowed_origin) {
    return error_response(error_form(head.path), 403, "web pages of other origins may not use this server; start it with --cors-origin");
  }
  if (!options_.keys && !host.empty() && !is_loopback(host_name(host))) {
    return error_response(error_form(head.path), 403, "a server without API keys answers to loopback host names only");
  }
  return std::nullopt;
}

std::optional<Response> ApiServer::admit(const RequestHead& head) const {
  const ErrorForm form = error_form(head.path);
  if (std::optional<Response> refusal = refuse_browser(head)) {
    return refusal;
  }
  if (head.method == "OPTIONS" && !options_.cors_origin.empty()) {
    return preflight();
  }
  const Routing routing = find_route(head.method, head.path);
  if (!routing.route) {
    if (routing.allow.empty()) {
      return error_response(form, 404, "there is no such path: " + json::to_text(head.path.substr(0, 200)));
    }
    Response response = error_response(form, 405, "this path answers to " + std::string(routing.allow) + " only");
    response.headers.emplace_back("Allow", routing.allow);
    return response;
  }
  if (is_public(routing.route->endpoint)) {
    return std::nullopt;
  }
  const std::scoped_lock lock(mutex_);
  if (keys_ && !keys_->accept(head)) {
    return error_response(form, 401, "wrong or missing API key; send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
  }
  if (phase_ != Phase::ready) {
    return error_response(form, 503, "the server is " + std::string(phase_name(phase_)) + "; try again");
  }
  return std::nullopt;
}

void ApiServer::handle(Request request, const std::shared_ptr<Exchange>& exchange) const {
  const Routing routing = find_route(request.head.method, request.head.path);
  const std::shared_ptr<const ServedModel> served = model();
  if (!routing.route) {
    exchange->respond(error_response(error_form(request.head.path), 404, "there is no such path"));
    return;
  }
  switch (routing.route->endpoint) {
    case Endpoint::chat_completions:
      generate(served, recipe::Api::chat, request, exchange);
      return;
    case Endpoint::messages:
      generate(served, recipe::Api::messages, request, exchange);
      return;
    case Endpoint::responses:
      generate(served, recipe::Api::responses, request, exchange);
      return;
    default:
      exchange->respond(answer(*routing.route, served.get(), request));
  }
}

/// Everything but generation. `model` is null while loading, and then only public endpoints come here.
Response ApiServer::answer(const Route& route, const ServedModel* model, const Request& request) const {
  switch (route.endpoint) {
    case Endpoint::health:
      return health(model);
    case Endpoint::version:
      return version(model);
    case Endpoint::playground:
      if (options_.has_playground) {
        return {.content_type = "text/html; charset=utf-8",
                .body = std::string(playground_page()),
                .headers = {{"Content-Security-Policy",
                             "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"},
                            {"X-Content-Type-Options", "nosniff"}}};
      }
      return error_response(ErrorForm::openai, 404, "the playground is switched off");
    case Endpoint::models:
      return list_models(*model, started_unix_time_);
    case Endpoint::model:
      return describe_model(*model, route.parameter, started_unix_time_);
    case Endpoint::tokenize:
      return tokenize(*model, request.body);
    case Endpoint::detokenize:
      return detokenize(*model, request.body);
    case Endpoint::render:
      return render_prompt(*model, request.body);
    case Endpoint::count_tokens:
      return count_tokens(*model, request.body);
    default:
      return error_response(ErrorForm::openai, 404, "there is no such path");
  }
}

Response ApiServer::version(const ServedModel* model) const {
  json::Object out{{"version", options_.version}, {"commit", options_.commit}};
  if (model != nullptr) {
    out.set("device", model->device);
    out.set("model", model->name);
  }
  return {.body = json::to_text(std::move(out))};
}

}  // namespace deepinfer::server
