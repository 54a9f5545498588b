// Responses: from the typed body to the conversation, with every rule of spec/recipe.md 4.1 and 4.4 in the official order.
#include <algorithm>
#include <utility>

#include "recipe/api_convert.h"
#include "recipe/request_settings.h"
#include "recipe/responses_body.h"
#include "recipe/responses_input.h"
#include "recipe/responses_tools.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

namespace {

/// Settings in the form in which the response reports them.
ResponsesEcho echo_of(const ResponsesBody& body) {
  ResponsesEcho echo;
  echo.instructions = body.instructions;
  echo.max_output_tokens = body.max_output_tokens;
  echo.temperature = body.temperature.value_or(echo.temperature);
  echo.top_p = body.top_p.value_or(echo.top_p);
  echo.top_logprobs = body.top_logprobs.value_or(0);
  echo.user = body.user;
  echo.tools = report_tools(body.tools);
  echo.tool_choice = body.tool_choice.echo;
  echo.text = json::Object{{"format", body.format ? body.format->echo : ResponsesFormat{}.echo}, {"verbosity", body.verbosity}};
  echo.reasoning = body.reasoning_echo;
  return echo;
}

/// Functions of the request: declared ones, then those that tool searches found (V4.1), which `found` lists per search.
Verdict collect_functions(ResponsesBody& body, ModelVersion version, ResponsesFunctions& functions, FoundFunctions& found) {
  if (Verdict verdict = functions.add(std::move(body.tools), "tools"); !verdict) {
    return verdict;
  }
  functions.found_by_search();
  auto* items = body.input ? std::get_if<std::vector<ResponsesItem>>(&*body.input) : nullptr;
  if (items == nullptr || version == ModelVersion::v4) {
    return {};
  }
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto* output = std::get_if<ResponsesToolSearchOutput>(&(*items)[i]);
    if (output == nullptr) {
      continue;
    }
    const std::size_t begin = functions.declarations().size();
    // A copy: the output's own text is written from the tools later.
    if (Verdict verdict = functions.add(output->tools, "input[" + std::to_string(i) + "].tools"); !verdict) {
      return verdict;
    }
    std::vector<std::string>& names = found.emplace_back();
    for (std::size_t k = begin; k < functions.declarations().size(); ++k) {
      names.push_back(functions.declarations()[k].name);
    }
  }
  return {};
}

RequestedToolChoice plain_choice(const ResponsesToolChoice& choice) {
  using Kind = ResponsesToolChoice::Kind;
  switch (choice.kind) {
    case Kind::none:
      return {.kind = RequestedToolChoice::Kind::none, .name = {}};
    case Kind::required:
      return {.kind = RequestedToolChoice::Kind::required, .name = {}};
    case Kind::named:
      return {.kind = RequestedToolChoice::Kind::named, .name = choice.name};
    case Kind::automatic:
    case Kind::web_search:
      return {};
  }
  std::unreachable();
}

Verdict apply_tools(const ResponsesBody& body, std::vector<ToolDeclaration> declarations, Conversation& conversation,
                    Conformance conformance) {
  const RequestedToolChoice choice = plain_choice(body.tool_choice);
  std::vector<Tool> tools;
  if (choice.kind != RequestedToolChoice::Kind::none) {
    if (Verdict verdict = assign(tools, build_tools(std::move(declarations), conformance)); !verdict) {
      return verdict;
    }
  }
  if (Verdict verdict = apply_tool_choice(conversation, std::move(tools), choice); !verdict) {
    return verdict;
  }
  settle_system_tools(conversation);
  return {};
}

std::expected<std::optional<json::Value>, RequestError> apply_format(const ResponsesBody& body, Conversation& conversation,
                                                                     Conformance conformance) {
  using Kind = ResponsesFormat::Kind;
  if (!body.format || body.format->kind == Kind::text) {
    return std::nullopt;
  }
  if (body.format->kind == Kind::json_schema) {
    return apply_schema_format(conversation, body.format->schema, {.is_strict = body.format->strict, .conformance = conformance});
  }
  conversation.response_format = JsonObjectFormat{};
  return std::nullopt;
}

Verdict apply_top_logprobs(const ResponsesBody& body, InferenceOptions& inference) {
  constexpr std::uint32_t kMaxTopLogprobs = 20;
  if (!body.top_logprobs) {
    return {};
  }
  if (*body.top_logprobs > kMaxTopLogprobs) {
    return reject("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
  }
  inference.logprobs = true;
  inference.top_logprobs = *body.top_logprobs;
  return {};
}

}  // namespace

std::expected<ConvertedRequest, RequestError> convert_responses(ResponsesBody body, const ConvertOptions& options) {
  ConvertedRequest request;
  Conversation& conversation = request.conversation;
  request.responses.echo = echo_of(body);
  Verdict verdict = assign(request.version, find_model(body.model, options));
  ResponsesFunctions functions(request.version, options.responses_web_search, request.responses);
  FoundFunctions found;
  if (verdict) verdict = collect_functions(body, request.version, functions, found);
  const bool wants_web_search = body.tool_choice.kind == ResponsesToolChoice::Kind::web_search;
  if (verdict && wants_web_search && options.responses_web_search == WebSearch::reject) {
    verdict = reject("Server tools are not supported");
  }
  const Thinking thinking = resolve_thinking(std::nullopt, body.effort, options.default_thinking_mode);
  conversation.thinking_mode = thinking.mode;
  conversation.reasoning_effort = thinking.effort;
  if (verdict) {
    verdict = assign(conversation.messages,
                     convert_responses_input(body, found, request.version, options.special_tokens.image, options.conformance));
  }
  const ReasoningRule rule{.behaviour = options.missing_reasoning,
                           .has_tools = !functions.declarations().empty(),
                           .field = "reasoning_text",
                           .conformance = options.conformance};
  if (verdict) verdict = settle_reasoning(conversation, rule);
  if (verdict) verdict = apply_tools(body, std::move(functions).take(), conversation, options.conformance);
  const bool is_json_object = body.format && body.format->kind == ResponsesFormat::Kind::json_object;
  if (verdict && is_json_object && !any_content_mentions_json(conversation)) {
    verdict = reject("Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.");
  }
  std::optional<json::Value> constraint_schema;
  if (verdict) verdict = assign(constraint_schema, apply_format(body, conversation, options.conformance));
  const bool has_format = body.format && body.format->kind != ResponsesFormat::Kind::text;
  if (verdict) verdict = check_strict_mix(conversation.tools, has_format);
  if (verdict) verdict = assign(request.inference.temperature, resolve_temperature(body.temperature, thinking.mode));
  if (verdict) verdict = assign(request.inference.top_p, resolve_top_p(body.top_p, conversation, request.version));
  if (verdict) verdict = apply_top_logprobs(body, request.inference);
  if (verdict && body.max_output_tokens) {
    verdict = check_max_tokens(*body.max_output_tokens, max_tokens_bound(thinking.mode, options));
  }
  if (!verdict) {
    return std::unexpected(std::move(verdict.error()));
  }
  request.model = std::move(body.model);
  request.stream = body.stream.value_or(false);
  request.inference.max_tokens = body.max_output_tokens;
  derive_reply_options(request, constraint_schema);
  return request;
}

}  // namespace deepinfer::recipe
