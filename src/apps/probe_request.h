// Reading the members of a model probe request. Errors are invalid_argument and name the member.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/request.h"

namespace deepinfer::apps {

/// A member that is absent or null is `otherwise`.
[[nodiscard]] Result<std::string> text_member(const json::Value& request, std::string_view name, std::string_view otherwise);
[[nodiscard]] Result<std::int64_t> integer_member(const json::Value& request, std::string_view name, std::int64_t otherwise);
[[nodiscard]] Result<double> number_member(const json::Value& request, std::string_view name, double otherwise);
/// A list of token ids that must be there.
[[nodiscard]] Result<std::vector<TokenId>> ids_member(const json::Value& request, std::string_view name);

/// "ids", "max_tokens", "sampling", "ignore_eos". Without "sampling" generation is greedy; inside it what is absent has the API's default.
[[nodiscard]] Result<engine::GenerationRequest> generation_request(const json::Value& request);
/// "batch_with": prompts of companion requests.
[[nodiscard]] Result<std::vector<std::vector<TokenId>>> companion_prompts(const json::Value& request);

/// {"error": {"kind", "message"}}
[[nodiscard]] json::Value error_answer(const Error& error);

/// The first error of several results, nullptr when all have values.
template <class... Results>
[[nodiscard]] const Error* first_error(const Results&... results) {
  const Error* found = nullptr;
  const auto look = [&found](const auto& result) { found = found == nullptr && !result ? &result.error() : found; };
  (look(results), ...);
  return found;
}

}  // namespace deepinfer::apps
