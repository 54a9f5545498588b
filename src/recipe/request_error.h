// The ways a request is refused inside conversion. Public type: RequestError in convert.h.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "recipe/convert.h"

namespace deepinfer::recipe {

/// A check that found nothing, or the refusal.
using Verdict = std::expected<void, RequestError>;

/// 400 with the official error object around `message`.
[[nodiscard]] std::unexpected<RequestError> reject(std::string message);

/// The body is no JSON or does not fit the request type.
[[nodiscard]] RequestError unreadable(RequestError::Stage stage, std::string_view problem);

}  // namespace deepinfer::recipe
