#include "server/endpoints.h"

#include <expected>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "recipe/convert.h"
#include "recipe/render.h"
#include "server/api_error.h"
#include "server/member_reader.h"
#include "server/prepared_request.h"
#include "server/turn_store.h"

namespace deepinfer::server {
namespace {

Response json_response(const json::Value& body) { return {.status = 200, .body = json::to_text(body)}; }

Response bad_request(std::string_view message) { return error_response(ErrorForm::openai, 400, message); }

json::Value model_entry(const ServedModel& model, std::string_view id, std::int64_t created) {
  json::Array capabilities{"chat", "thinking", "tools", "streaming"};
  if (model.images) {
    capabilities.emplace_back("vision");
  }
  return json::Object{{"id", id},
                      {"object", "model"},
                      {"created", created},
                      {"owned_by", "deepinfer"},
                      {"context_length", model.context_length},
                      {"capabilities", std::move(capabilities)}};
}

json::Array id_list(const std::vector<TokenId>& ids) {
  json::Array out;
  out.reserve(ids.size());
  for (const TokenId id : ids) {
    out.emplace_back(id.value);
  }
  return out;
}

Result<std::vector<TokenId>> read_ids(const ServedModel& model, const json::Value& body) {
  const json::Value* const value = body.find("ids");
  const json::Array* const items = value == nullptr ? nullptr : value->as_array();
  if (items == nullptr) {
    return fail(ErrorKind::invalid_argument, "'ids' must be an array of token ids");
  }
  std::vector<TokenId> out;
  out.reserve(items->size());
  for (const json::Value& item : *items) {
    const json::Number* const number = item.as_number();
    const std::optional<std::int64_t> id = number == nullptr ? std::nullopt : number->as_int64();
    if (!id || *id < 0 || *id >= model.tokenizer.vocab_size()) {
      return fail(ErrorKind::invalid_argument, "'ids[" + std::to_string(out.size()) + "]' must be an integer from 0 to " +
                                                   std::to_string(model.tokenizer.vocab_size() - 1));
    }
    out.push_back(TokenId{static_cast<std::int32_t>(*id)});
  }
  return out;
}

std::optional<recipe::Api> api_named(std::string_view name) {
  if (name == "chat") {
    return recipe::Api::chat;
  }
  if (name == "messages") {
    return recipe::Api::messages;
  }
  return name == "responses" ? std::optional(recipe::Api::responses) : std::nullopt;
}

struct Rendered {
  recipe::Prompt prompt;
  std::vector<TokenId> ids;
  json::Array images;  ///< places of their spans among the ids: first, end
};

std::expected<Rendered, Response> render_body(const ServedModel& model, recipe::Api api, std::string_view body, const Viewer& viewer) {
  auto parsed = parse(api, body);
  if (!parsed) {
    return std::unexpected(Response{.status = parsed.error().status, .body = std::move(parsed.error().body)});
  }
  auto converted = convert(model, api, std::move(*parsed));
  if (!converted) {
    return std::unexpected(Response{.status = converted.error().status, .body = std::move(converted.error().body)});
  }
  recipe::Conversation& conversation = converted->request.conversation;
  if (viewer.turns != nullptr && !model.strict_official) {
    viewer.turns->restore(viewer.owner, conversation);
  }
  Rendered out{.prompt = recipe::render(conversation, converted->request.version, model.convert.special_tokens), .ids = {}, .images = {}};
  auto encoded = encode_prompt(model, api, out.prompt, Pixels::counted);
  if (!encoded) {
    return std::unexpected(Response{.status = encoded.error().status, .body = std::move(encoded.error().body)});
  }
  out.prompt.images.clear();  // they point into the conversation, which ends here
  out.ids = std::move(encoded->ids);
  for (const engine::PromptImage& image : encoded->images) {
    out.images.emplace_back(json::Array{image.first_position, image.first_position + image.num_tokens});
  }
  return out;
}

}  // namespace

Response list_models(const ServedModel& model, std::int64_t created) {
  json::Array entries{model_entry(model, model.name, created)};
  for (const auto& [name, version] : model.convert.model_versions) {
    if (name != model.name) {
      entries.push_back(model_entry(model, name, created));
    }
  }
  return json_response(json::Object{{"object", "list"}, {"data", std::move(entries)}});
}

Response describe_model(const ServedModel& model, std::string_view id, std::int64_t created) {
  if (!model.convert.model_versions.contains(id)) {
    return error_response(ErrorForm::openai, 404, "there is no model '" + std::string(id) + "'; GET /v1/models lists the names");
  }
  return json_response(model_entry(model, id, created));
}

Response tokenize(const ServedModel& model, std::string_view body) {
  const auto parsed = json::parse(body);
  if (!parsed) {
    return bad_request("invalid JSON request: " + parsed.error().message);
  }
  MemberReader members(*parsed);
  const std::optional<std::string_view> text = members.text("text");
  const bool special = members.boolean("special").value_or(true);
  if (!text) {
    return bad_request("'text' must be a string");
  }
  if (!members.problem().empty()) {
    return bad_request(members.problem());
  }
  const auto mode = special ? tokenizer::AddedTokens::recognise : tokenizer::AddedTokens::ignore;
  const std::vector<TokenId> ids = model.tokenizer.encode(*text, mode, model.num_encode_threads);
  return json_response(json::Object{{"ids", id_list(ids)}, {"count", static_cast<std::uint64_t>(ids.size())}});
}

Response detokenize(const ServedModel& model, std::string_view body) {
  const auto parsed = json::parse(body);
  if (!parsed) {
    return bad_request("invalid JSON request: " + parsed.error().message);
  }
  const auto ids = read_ids(model, *parsed);
  MemberReader members(*parsed);
  const bool skip_special = members.boolean("skip_special").value_or(false);
  if (!ids || !members.problem().empty()) {
    return bad_request(ids ? members.problem() : ids.error().message);
  }
  const auto mode = skip_special ? tokenizer::SpecialTokens::skip : tokenizer::SpecialTokens::keep;
  return json_response(json::Object{{"text", model.tokenizer.decode(*ids, mode)}});
}

Response render_prompt(const ServedModel& model, std::string_view body, const Viewer& viewer) {
  const auto parsed = json::parse(body, {.max_depth = recipe::kMaxBodyDepth + 1});  // a body inside {"body": …}
  if (!parsed) {
    return bad_request("invalid JSON request: " + parsed.error().message);
  }
  recipe::Api api = recipe::Api::chat;
  std::string inner(body);
  if (const json::Value* const wrapped = parsed->find("body")) {
    const json::Value* const name = parsed->find("api");
    const std::string* const text = name == nullptr ? nullptr : name->as_string();
    const std::optional<recipe::Api> named = text == nullptr ? std::nullopt : api_named(*text);
    if (name != nullptr && !named) {
      return bad_request("'api' must be \"chat\", \"messages\" or \"responses\"");
    }
    api = named.value_or(api);
    inner = json::to_text(*wrapped);
  }
  const auto rendered = render_body(model, api, inner, viewer);
  if (!rendered) {
    return rendered.error();
  }
  json::Array ranges;
  for (const auto& [begin, end] : rendered->prompt.special_ranges) {
    ranges.emplace_back(json::Array{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)});
  }
  json::Object out{{"prompt", rendered->prompt.text}, {"ids", id_list(rendered->ids)}, {"special_ranges", std::move(ranges)}};
  if (!rendered->images.empty()) {
    out.append("image_ranges", rendered->images);
  }
  return json_response(out);
}

Response count_tokens(const ServedModel& model, std::string_view body, const Viewer& viewer) {
  const auto rendered = render_body(model, recipe::Api::messages, body, viewer);
  if (!rendered) {
    return rendered.error();
  }
  return json_response(json::Object{{"input_tokens", static_cast<std::uint64_t>(rendered->ids.size())}});
}

}  // namespace deepinfer::server
