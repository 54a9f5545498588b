#include "server/prepared_request.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>
#include <variant>

#include "recipe/render.h"
#include "server/api_error.h"
#include "server/http_message.h"
#include "server/response_store.h"
#include "server/turn_store.h"

namespace deepinfer::server {
namespace {

/// Conversion errors are official to the byte, but the package has the form of Chat for Messages too. Unreadable bodies take the form of
/// the API, which the package does not define.
Refusal conversion_refusal(const ServedModel& model, recipe::Api api, recipe::RequestError error) {
  if (error.stage == recipe::RequestError::Stage::convert && (api != recipe::Api::messages || model.strict_official)) {
    return {.status = error.status, .body = std::move(error.body), .message = std::move(error.message)};
  }
  return refusal(api, error.status, std::move(error.message));
}

/// The input of a Responses body as items.
json::Array take_input(json::Object& body) {
  json::Value* const input = body.find("input");
  if (input == nullptr) {
    return {};
  }
  if (json::Array* const items = input->as_array()) {
    return std::move(*items);
  }
  if (input->as_string() == nullptr) {
    return {};
  }
  return {json::Object{{"type", "message"}, {"role", "user"}, {"content", std::move(*input)}}};
}

/// What a Responses body says about the responses before it and about being kept.
struct Keeping {
  std::string previous;
  std::optional<json::Array> input_items;
};

/// Puts the items of the earlier response before the input.
std::expected<Keeping, Refusal> join_previous(json::Value& body, const CompletionRequest& request) {
  json::Object* const members = body.as_object();
  if (members == nullptr || request.api != recipe::Api::responses || request.responses == nullptr) {
    return Keeping{};
  }
  const auto refuse = [](std::string message) { return std::unexpected(refusal(recipe::Api::responses, 400, std::move(message))); };
  Keeping out;
  const json::Value* const previous = members->find("previous_response_id");
  if (previous != nullptr && !previous->is_null()) {
    if (previous->as_string() == nullptr) {
      return refuse("previous_response_id must be a string");
    }
    out.previous = *previous->as_string();
    const auto found = request.responses->find(request.owner, out.previous);
    if (!found) {
      return refuse("Previous response with id '" + out.previous.substr(0, 100) + "' not found.");
    }
    Result<json::Value> earlier = json::parse(found->items, {.max_depth = 1000});
    if (!earlier || earlier->as_array() == nullptr) {
      return std::unexpected(refusal(recipe::Api::responses, 500, "the stored response cannot be read"));
    }
    json::Array items = std::move(*earlier->as_array());
    json::Array added = take_input(*members);
    items.insert(items.end(), std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
    members->set("input", std::move(items));
  }
  const json::Value* const store = members->find("store");
  const bool* const wants_store = store == nullptr ? nullptr : store->as_bool();
  if (wants_store == nullptr || *wants_store) {
    const json::Value* const input = members->find("input");
    json::Object copy{{"input", input == nullptr ? json::Value() : *input}};
    out.input_items = take_input(copy);
  }
  return out;
}

/// Changes what the conversion would refuse or ignore. It knows of one choice only (read_extras has judged n), and of the limit of a
/// Chat reply by its old name only.
void prepare_members(recipe::Api api, json::Object& members) {
  members.erase("n");
  const auto is_given = [&members](std::string_view name) {
    const json::Value* const value = members.find(name);
    return value != nullptr && !value->is_null();
  };
  if (api == recipe::Api::chat && is_given("max_completion_tokens") && !is_given("max_tokens")) {
    members.set("max_tokens", *members.find("max_completion_tokens"));
  }
}

/// The files of images, once their pixels are made.
void drop_image_files(recipe::Conversation& conversation) {
  for (recipe::Message& message : conversation.messages) {
    std::visit(
        [](auto& role) {
          if constexpr (requires { role.content.images; }) {
            role.content.images.clear();
            role.content.placeholders.clear();
          }
        },
        message);
  }
}

/// Renders the conversation and sets prompt, images and max_tokens.
std::optional<Refusal> encode(const ServedModel& model, PreparedRequest& out) {
  const recipe::Prompt prompt = recipe::render(out.converted.conversation, out.converted.version, model.convert.special_tokens);
  auto encoded = encode_prompt(model, out.api, prompt, Pixels::kept);
  if (!encoded) {
    return std::move(encoded.error());
  }
  drop_image_files(out.converted.conversation);
  out.prompt = std::move(encoded->ids);
  out.images = std::move(encoded->images);
  const auto max_tokens = recipe::resolve_max_tokens(out.converted, out.prompt.size(), static_cast<std::uint64_t>(model.context_length));
  if (!max_tokens) {
    return conversion_refusal(model, out.api, max_tokens.error());
  }
  out.max_tokens = *max_tokens;
  return std::nullopt;
}

/// Puts what the reply is to fit into the request.
std::optional<Refusal> add_constraint(const ServedModel& model, RequestedConstraint requested, PreparedRequest& out) {
  out.job = constraint_job(requested, out.converted, model.constraints);
  out.requested = std::move(requested);
  if (!out.job || model.compiler) {
    return std::nullopt;
  }
  const bool is_asked_for = out.job->body || std::ranges::any_of(out.job->tools, &grammar::ToolDefinition::is_strict);
  out.job.reset();
  return is_asked_for && !model.strict_official ? std::optional(refusal(out.api, 400, "structured output is switched off on this server"))
                                                : std::nullopt;
}

}  // namespace

std::expected<json::Value, Refusal> parse(recipe::Api api, std::string_view body) {
  auto parsed = recipe::parse_body(body);
  if (!parsed) {
    return std::unexpected(refusal(api, parsed.error().status, std::move(parsed.error().message)));
  }
  return std::move(*parsed);
}

std::expected<IllustratedIds, Refusal> encode_prompt(const ServedModel& model, recipe::Api api, const recipe::Prompt& prompt,
                                                     Pixels pixels) {
  if (!prompt.images.empty() && !model.images) {
    return std::unexpected(refusal(api, 400, "the model " + model.name + " does not take images: " + model.images.error()));
  }
  auto encoded = recipe::encode_illustrated(prompt, model.tokenizer, model.num_encode_threads);
  if (!encoded) {
    return std::unexpected(refusal(api, 500, std::move(encoded.error().message)));
  }
  if (prompt.images.empty()) {
    return IllustratedIds{.ids = std::move(encoded->ids), .images = {}};
  }
  auto placed = place_images(*model.images, {.ids = std::move(encoded->ids),
                                             .placeholders = std::move(encoded->placeholders),
                                             .sources = prompt.images,
                                             .context_length = static_cast<std::size_t>(model.context_length),
                                             .pixels = pixels});
  if (!placed) {
    return std::unexpected(refusal(api, placed.error().status, std::move(placed.error().message)));
  }
  return std::move(*placed);
}

std::expected<ConvertedBody, Refusal> convert(const ServedModel& model, recipe::Api api, json::Value body) {
  auto requested = take_constraint(api, body, model.strict_official ? BodyForms::official : BodyForms::extended);
  auto converted = recipe::convert_body(api, std::move(body), conversion_options(model));
  if (!converted) {
    return std::unexpected(conversion_refusal(model, api, std::move(converted.error())));
  }
  if (!requested) {
    return std::unexpected(refusal(api, 400, std::move(requested.error().message)));
  }
  if (requested->prompt_schema) {
    converted->conversation.response_format = recipe::JsonSchemaFormat{*requested->prompt_schema};
  }
  return ConvertedBody{.request = std::move(*converted), .requested = std::move(*requested)};
}

std::expected<void, Refusal> set_constraint(PreparedRequest& request, const grammar::CompileResult& compiled) {
  if (!compiled) {
    ConstraintRefusal refused = constraint_refusal(request.api, request.requested, compiled.error());
    return std::unexpected(Refusal{.status = 400, .body = std::move(refused.body), .message = std::move(refused.message)});
  }
  request.constraint =
      engine::Constraint{.grammar = *compiled, .trigger_ids = request.requested.trigger_ids, .bound_id = request.requested.bound_id};
  return {};
}

Refusal refusal(recipe::Api api, int status, std::string message) {
  const ErrorForm form = api == recipe::Api::messages ? ErrorForm::anthropic : ErrorForm::openai;
  return {.status = status, .body = error_body(form, status, message), .message = std::move(message)};
}

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::exhausted:
      return 429;
    case ErrorKind::cancelled:
      return 503;
    case ErrorKind::invalid_argument:
    case ErrorKind::unsupported:
      return 400;
    default:
      return 500;
  }
}

recipe::ConvertOptions conversion_options(const ServedModel& model) {
  recipe::ConvertOptions out = model.convert;
  out.conformance = model.strict_official ? recipe::Conformance::official : recipe::Conformance::improved;
  return out;
}

void set_images(ServedModel& model, const std::optional<model::VisionConfig>& vision, TokenId image_token) {
  model.images = image_settings(vision);
  if (!model.images) {
    return;
  }
  const std::string spelling(model.tokenizer.bytes(image_token));
  if (model.tokenizer.find(spelling) != image_token) {
    model.images = std::unexpected("its tokenizer has no token for the image_token_id of its configuration");
    return;
  }
  model.convert.special_tokens.image = spelling;
}

recipe::ConvertOptions convert_options(const std::string& name) {
  recipe::ConvertOptions out;
  out.model_versions = {{"DeepSeek-V4.1-Flash", recipe::ModelVersion::v4_1}, {name, recipe::ModelVersion::v4_1}};
  return out;
}

std::string new_response_id(recipe::Api api) {
  const std::string_view prefix = api == recipe::Api::chat ? "chatcmpl-" : api == recipe::Api::messages ? "msg_" : "resp_";
  return std::string(prefix) + sane_request_id({});
}

std::uint64_t random_bits() {
  thread_local std::random_device entropy;
  return (std::uint64_t{entropy()} << 32) | entropy();
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::expected<PreparedRequest, Refusal> prepare(const ServedModel& model, const CompletionRequest& request) {
  const recipe::Api api = request.api;
  auto body = parse(api, request.body);
  if (!body) {
    return std::unexpected(std::move(body.error()));
  }
  PreparedRequest out;
  out.api = api;
  auto keeping = join_previous(*body, request);
  if (!keeping) {
    return std::unexpected(std::move(keeping.error()));
  }
  out.previous_response_id = std::move(keeping->previous);
  out.input_items = std::move(keeping->input_items);
  Result<RequestExtras> extras = model.strict_official ? RequestExtras{} : read_extras(*body);
  if (json::Object* const members = body->as_object(); members != nullptr && !model.strict_official) {
    prepare_members(api, *members);
  }
  auto converted = convert(model, api, std::move(*body));
  if (!converted) {
    return std::unexpected(std::move(converted.error()));
  }
  if (!extras) {
    return std::unexpected(refusal(api, 400, std::move(extras.error().message)));
  }
  if (extras->num_choices > 1 && api != recipe::Api::chat) {
    return std::unexpected(refusal(api, 400, "n is for Chat Completions only"));
  }
  out.converted = std::move(converted->request);
  if (std::optional<Refusal> problem = add_constraint(model, std::move(converted->requested), out)) {
    return std::unexpected(std::move(*problem));
  }
  out.extras = std::move(*extras);
  if (request.turns != nullptr && !model.strict_official) {
    request.turns->restore(request.owner, out.converted.conversation);
  }
  if (std::optional<Refusal> problem = encode(model, out)) {
    return std::unexpected(std::move(*problem));
  }
  const std::optional<std::int64_t> seed = out.converted.inference.seed;
  out.seed = seed ? static_cast<std::uint64_t>(*seed) : out.extras.seed ? *out.extras.seed : random_bits();
  out.id = new_response_id(api);
  return out;
}

}  // namespace deepinfer::server
