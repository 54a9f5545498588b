#include "recipe/convert.h"

#include <algorithm>
#include <utility>

#include "recipe/api_convert.h"
#include "recipe/body_reader.h"
#include "recipe/improve.h"
#include "recipe/request_error.h"
#include "recipe/schema_check.h"
#include "recipe/strict_schema.h"

namespace deepinfer::recipe {

namespace {

constexpr json::ParseLimits kBodyLimits{.max_depth = kMaxBodyDepth, .finite_numbers = true};

/// A typed body, or the first member that does not fit.
template <class Read>
auto read_body(json::Value& value, Read read) -> std::expected<decltype(read(std::declval<Reader>())), RequestError> {
  const Place place;
  Misfit misfit;
  auto body = read(Reader(value, place, misfit));
  if (misfit.found()) {
    return std::unexpected(unreadable(RequestError::Stage::body, misfit.message()));
  }
  return body;
}

/// Conversion without improve().
std::expected<ConvertedRequest, RequestError> convert_officially(Api api, json::Value body, const ConvertOptions& options) {
  switch (api) {
    case Api::chat: {
      auto chat = read_body(body, read_chat_body);
      return chat ? convert_chat(std::move(*chat), options) : std::unexpected(std::move(chat.error()));
    }
    case Api::messages: {
      auto messages = read_body(body, read_messages_body);
      return messages ? convert_messages(std::move(*messages), options) : std::unexpected(std::move(messages.error()));
    }
    case Api::responses: {
      auto responses = read_body(body, read_responses_body);
      return responses ? convert_responses(std::move(*responses), options) : std::unexpected(std::move(responses.error()));
    }
  }
  std::unreachable();
}

}  // namespace

std::expected<json::Value, RequestError> parse_body(std::string_view body) {
  Result<json::Value> value = json::parse(body, kBodyLimits);
  if (!value) {
    return std::unexpected(unreadable(RequestError::Stage::json, value.error().message));
  }
  return std::move(*value);
}

std::expected<ConvertedRequest, RequestError> convert(Api api, std::string_view body, const ConvertOptions& options) {
  auto value = parse_body(body);
  return value ? convert_body(api, std::move(*value), options) : std::unexpected(std::move(value.error()));
}

std::expected<ConvertedRequest, RequestError> convert_body(Api api, json::Value body, const ConvertOptions& options) {
  if (options.conformance == Conformance::official) {
    return convert_officially(api, std::move(body), options);
  }
  const bool is_single_call = asks_for_single_calls(api, body);
  auto request = convert_officially(api, std::move(body), options);
  if (!request) {
    return request;
  }
  if (Verdict verdict = improve(*request); !verdict) {
    return std::unexpected(std::move(verdict.error()));
  }
  request->parsing.conformance = Conformance::improved;
  if (is_single_call) {
    request->parsing.max_calls = 1;
  }
  return request;
}

std::expected<std::optional<json::Value>, RequestError> apply_schema_format(Conversation& conversation, json::Value schema,
                                                                            SchemaRules rules) {
  std::optional<json::Value> constraint;
  if (rules.is_strict) {
    std::expected<json::Value, RequestError> rebuilt = strict_response_schema(schema, rules.conformance);
    if (!rebuilt) {
      return std::unexpected(std::move(rebuilt.error()));
    }
    constraint = std::move(*rebuilt);
  } else if (const std::optional<std::string> problem = schema_problem(schema)) {
    return reject("Invalid json schema: " + *problem);
  }
  conversation.response_format = JsonSchemaFormat{std::move(schema)};
  return constraint;
}

std::expected<std::uint32_t, RequestError> resolve_max_tokens(const ConvertedRequest& request, std::uint64_t prompt_tokens,
                                                              std::uint64_t context_limit) {
  constexpr std::uint64_t kChatDefault = 8192;
  constexpr std::uint64_t kThinkingDefault = 65536;
  constexpr std::uint64_t kMaxEffortDefault = 131072;
  const std::uint64_t requested = request.inference.max_tokens.value_or(0);
  if (prompt_tokens > context_limit || requested > context_limit - prompt_tokens) {
    return reject("This model's maximum context length is " + std::to_string(context_limit) + " tokens. However, you requested " +
                  std::to_string(prompt_tokens + requested) + " tokens (" + std::to_string(prompt_tokens) + " in the messages, " +
                  std::to_string(requested) + " in the completion). Please reduce the length of the messages or completion.");
  }
  const Conversation& conversation = request.conversation;
  const std::uint64_t thinking_default = conversation.reasoning_effort == ReasoningEffort::max ? kMaxEffortDefault : kThinkingDefault;
  const std::uint64_t mode_default = conversation.thinking_mode == ThinkingMode::on ? thinking_default : kChatDefault;
  const std::uint64_t wanted = request.inference.max_tokens ? requested : mode_default;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, std::min(wanted, context_limit - prompt_tokens)));
}

}  // namespace deepinfer::recipe
