// Endpoints that need no generation: model lists, tokenization, rendering. Plain functions from a body to a response.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http_message.h"
#include "server/served_model.h"

namespace deepinfer::server {

class TurnStore;

/// Whose kept turns a prompt may repeat (turn_store.h), so that it is the prompt that a request would have.
struct Viewer {
  std::string owner;
  TurnStore* turns = nullptr;
};

/// GET /v1/models: every accepted name, the served one first. `created`: Unix time, seconds.
[[nodiscard]] Response list_models(const ServedModel& model, std::int64_t created);
/// GET /v1/models/{id}
[[nodiscard]] Response describe_model(const ServedModel& model, std::string_view id, std::int64_t created);
/// {"text": S, "special": bool} → {"ids": […], "count": n}. special (default true): spellings of control tokens become their ids.
[[nodiscard]] Response tokenize(const ServedModel& model, std::string_view body);
/// {"ids": […], "skip_special": bool} → {"text": S}
[[nodiscard]] Response detokenize(const ServedModel& model, std::string_view body);
/// {"api": "chat" | "messages" | "responses", "body": {…}} → {"prompt": S, "ids": […], "special_ranges": [[begin, end], …]},
/// offsets in UTF-8 bytes. A body without "body" is taken for a chat request itself.
[[nodiscard]] Response render_prompt(const ServedModel& model, std::string_view body, const Viewer& viewer);
/// POST /v1/messages/count_tokens: a Messages body → {"input_tokens": n}
[[nodiscard]] Response count_tokens(const ServedModel& model, std::string_view body, const Viewer& viewer);

}  // namespace deepinfer::server
