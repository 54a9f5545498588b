// The converters of the three APIs behind convert(), and the small steps they share. Internal to the room.
#pragma once

#include <expected>
#include <optional>
#include <utility>

#include "recipe/chat_body.h"
#include "recipe/convert.h"
#include "recipe/messages_body.h"
#include "recipe/request_error.h"
#include "recipe/responses_body.h"

namespace deepinfer::recipe {

[[nodiscard]] std::expected<ConvertedRequest, RequestError> convert_chat(ChatBody body, const ConvertOptions& options);
[[nodiscard]] std::expected<ConvertedRequest, RequestError> convert_messages(MessagesBody body, const ConvertOptions& options);
[[nodiscard]] std::expected<ConvertedRequest, RequestError> convert_responses(ResponsesBody body, const ConvertOptions& options);

/// Moves a good value into `target` or passes the refusal on.
template <class T, class From>
[[nodiscard]] Verdict assign(T& target, std::expected<From, RequestError> value) {
  if (!value) {
    return std::unexpected(std::move(value.error()));
  }
  target = std::move(*value);
  return {};
}

struct SchemaRules {
  bool is_strict = false;
  Conformance conformance = Conformance::official;
};

/// Sets a json_schema format after checking the schema. The constraint of a strict one is the rebuilt schema, which is returned.
[[nodiscard]] std::expected<std::optional<json::Value>, RequestError> apply_schema_format(Conversation& conversation, json::Value schema,
                                                                                          SchemaRules rules);

}  // namespace deepinfer::recipe
