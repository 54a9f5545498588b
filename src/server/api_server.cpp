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
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                      {"Access-Control-Allow-Headers", "authorization, content-type, x-api-key, anthropic-version, x-request-id"},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace

bool is_loopback(std::string_view address) { return address == "localhost" || address == "::1" || address.starts_with("127."); }

ApiServer::ApiServer(ApiServerOptions options)
    : options_(std::move(options)),
      started_unix_time_(unix_time()),
      shared_(new GenerationShared{.turns = TurnStore(options_.turns),
                                   .responses = ResponseStore(options_.responses),
                                   .running = RunningRequests(options_.max_requests_per_key),
                                   .metrics = Metrics()}) {
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
      .finished = [self](const AccessRecord& record) { self->finish(record); },
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
  if (std::optional<Response> refusal = refuse_key(head, routing.route->endpoint)) {
    return refusal;
  }
  const std::scoped_lock lock(mutex_);
  if (phase_ != Phase::ready && routing.route->endpoint != Endpoint::metrics) {
    return error_response(form, 503, "the server is " + std::string(phase_name(phase_)) + "; try again");
  }
  return std::nullopt;
}

std::optional<Response> ApiServer::refuse_key(const RequestHead& head, Endpoint endpoint) const {
  const ErrorForm form = error_form(head.path);
  const bool is_admin = options_.admin_keys && options_.admin_keys->accept(head);
  const std::scoped_lock lock(mutex_);
  if (endpoint == Endpoint::abort && !is_admin && (options_.admin_keys || keys_)) {
    return error_response(form, 403, "this path needs an administrator's key; see --admin-key-file");
  }
  if (keys_ && !is_admin && !keys_->accept(head)) {
    return error_response(form, 401, "wrong or missing API key; send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
  }
  return std::nullopt;
}

/// Without keys all requests are one user's.
std::string ApiServer::owner(const RequestHead& head) const { return options_.keys ? owner_of(head) : std::string(); }

void ApiServer::finish(const AccessRecord& record) const {
  const Routing routing = find_route(record.head.method, record.head.path);
  shared_->metrics.count_request(routing.route ? api_name(routing.route->endpoint) : "other", record.status);
  options_.log.info(access_line(record, options_.log_format));
  warn_of_drafter();
}

/// Says once that drafts are hardly ever accepted although the drafter is sure of them.
void ApiServer::warn_of_drafter() const {
  const std::shared_ptr<const ServedModel> served = model();
  if (served == nullptr || has_warned_of_drafter_.load() || !served->engine->stats().speculation.seems_broken()) {
    return;
  }
  if (!has_warned_of_drafter_.exchange(true)) {
    options_.log.warning(
        "the drafter of " + served->name +
        " is sure of its drafts, but most are refused: it does not belong to this checkpoint or is damaged; replies are right, "
        "--speculative off saves its time");
  }
}

void ApiServer::handle(Request request, const std::shared_ptr<Exchange>& exchange) const {
  const Routing routing = find_route(request.head.method, request.head.path);
  const std::shared_ptr<const ServedModel> served = model();
  if (!routing.route) {
    exchange->respond(error_response(error_form(request.head.path), 404, "there is no such path"));
    return;
  }
  const Endpoint endpoint = routing.route->endpoint;
  if (api_name(endpoint) == "other") {
    exchange->respond(answer(*routing.route, served.get(), request));
    return;
  }
  generate({.model = served, .shared = *shared_, .endpoint = endpoint, .owner = owner(request.head), .log_prompts = options_.log_prompts},
           request, exchange);
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
      return render_prompt(*model, request.body, {.owner = owner(request.head), .turns = &shared_->turns});
    case Endpoint::count_tokens:
      return count_tokens(*model, request.body, {.owner = owner(request.head), .turns = &shared_->turns});
    case Endpoint::stored_response:
    case Endpoint::delete_response:
    case Endpoint::cancel_response:
      return answer_about_response(route, owner(request.head));
    case Endpoint::metrics:
      return metrics(model);
    case Endpoint::abort:
      return abort(request);
    default:
      return error_response(ErrorForm::openai, 404, "there is no such path");
  }
}

Response ApiServer::answer_about_response(const Route& route, const std::string& owner) const {
  const std::string& id = route.parameter;
  if (route.endpoint == Endpoint::cancel_response && shared_->running.abort(id, &owner) > 0) {
    return {.body = json::to_text(json::Object{{"id", id}, {"object", "response"}, {"status", "cancelled"}})};
  }
  const auto stored = shared_->responses.find(owner, id);
  if (!stored) {
    return error_response(ErrorForm::openai, 404, "Response with id '" + id.substr(0, 100) + "' not found.");
  }
  switch (route.endpoint) {
    case Endpoint::cancel_response:
      return error_response(ErrorForm::openai, 400, "the response is complete");
    case Endpoint::delete_response:
      static_cast<void>(shared_->responses.erase(owner, id));
      return {.body = json::to_text(json::Object{{"id", id}, {"object", "response"}, {"deleted", true}})};
    default:
      return {.body = stored->body};
  }
}

/// {"request_id": ID} → {"aborted": n}. The id is the x-request-id of the request or the id of its reply.
Response ApiServer::abort(const Request& request) const {
  const auto body = json::parse(request.body);
  const json::Value* const id = body ? body->find("request_id") : nullptr;
  if (id == nullptr || id->as_string() == nullptr) {
    return error_response(ErrorForm::openai, 400, "the body must be {\"request_id\": \"…\"}");
  }
  const std::size_t num_aborted = shared_->running.abort(*id->as_string());
  return {.body = json::to_text(json::Object{{"aborted", static_cast<std::uint64_t>(num_aborted)}})};
}

Response ApiServer::metrics(const ServedModel* model) const {
  std::optional<EngineView> engine;
  if (model != nullptr) {
    engine.emplace(model->engine->stats(), model->memory);
  }
  const ServerGauges gauges{
      .num_connections = http_->num_connections(),
      .num_stored_responses = shared_->responses.num_responses(),
      .stored_response_bytes = shared_->responses.num_bytes(),
      .num_stored_turns = shared_->turns.num_turns(),
      .stored_turn_bytes = shared_->turns.num_bytes(),
      .grammars = model != nullptr && model->compiler != nullptr ? model->compiler->counters() : grammar::CompileCounters{}};
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = shared_->metrics.text(engine ? &*engine : nullptr, gauges)};
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
