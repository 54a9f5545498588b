// Error bodies in the form of the API that was called, for everything the recipe room does not answer itself.
#pragma once

#include <string>
#include <string_view>

#include "server/http_message.h"

namespace deepinfer::server {

/// openai: Chat Completions, Responses and our own endpoints. anthropic: Messages.
enum class ErrorForm { openai, anthropic };

/// The form that belongs to a path; openai for unknown ones.
[[nodiscard]] ErrorForm error_form(std::string_view path);

/// {"error": {"message", "type", "param": null, "code"}} or {"type": "error", "error": {"type", "message"}}.
[[nodiscard]] std::string error_body(ErrorForm form, int status, std::string_view message);

/// A complete response. 429 and 503 carry Retry-After.
[[nodiscard]] Response error_response(ErrorForm form, int status, std::string_view message);

}  // namespace deepinfer::server
