// From the body of a Chat Completions, Messages or Responses request to a conversation with inference and parsing options.
// Everything a client can get wrong is found here; rendering of the result cannot fail. No prompt text, no images loaded.
// Behaviour: the official deepseek-recipe 0.2.0 (spec/recipe.md section 4), byte for byte including error bodies; unless official
// conformance is asked for, with the improvements of docs/recipe.md.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "recipe/conformance.h"
#include "recipe/conversation.h"
#include "recipe/parsing_options.h"
#include "recipe/special_tokens.h"

namespace deepinfer::recipe {

enum class Api { chat, messages, responses };

/// Objects and lists inside one another that a body may have, the body included: as many as the official parser reads.
inline constexpr std::int32_t kMaxBodyDepth = 127;

/// What to do with an assistant turn of a thinking conversation that comes back without its reasoning.
enum class MissingReasoning { fill_empty, reject };
/// What to do with declared web search (and, in Messages, with server tool blocks).
enum class WebSearch { drop, reject };

struct ConvertOptions {
  ThinkingMode default_thinking_mode = ThinkingMode::on;
  MissingReasoning missing_reasoning = MissingReasoning::fill_empty;
  WebSearch responses_web_search = WebSearch::drop;
  WebSearch messages_web_search = WebSearch::reject;
  std::uint32_t thinking_max_tokens_upper_bound = 393216;
  std::uint32_t non_thinking_max_tokens_upper_bound = 393216;
  /// Accepted model names. Add an entry to serve a model under another name.
  std::map<std::string, ModelVersion, std::less<>> model_versions = {{"DeepSeek-V4-Pro", ModelVersion::v4},
                                                                     {"DeepSeek-V4.1-Flash", ModelVersion::v4_1}};
  SpecialTokens special_tokens;
  Conformance conformance = Conformance::improved;
};

/// What constrained decoding would enforce on the reply.
struct OutputConstraint {
  enum class Kind { json, regex, tool_call, tool_call_required };
  Kind kind = Kind::json;
  /// json: compact schema, empty for any JSON value. regex: the pattern. tool calls: compact array of function tools.
  std::string schema;

  friend bool operator==(const OutputConstraint&, const OutputConstraint&) = default;
};

struct InferenceOptions {
  std::optional<std::uint32_t> max_tokens;  ///< as requested; see resolve_max_tokens
  float temperature = 1.0F;                 ///< [0, 2]
  float top_p = 1.0F;                       ///< (0, 1]
  bool logprobs = false;
  std::optional<std::uint32_t> top_logprobs;  ///< [0, 20]
  std::optional<std::int64_t> seed;           ///< [0, 2^63)
  std::optional<OutputConstraint> output_constraint;
};

/// Settings of a Responses request that its response reports, as the request gave them. The JSON values have the reported form.
struct ResponsesEcho {
  std::optional<std::string> instructions;
  std::optional<std::uint32_t> max_output_tokens;
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::uint32_t top_logprobs = 0;
  std::optional<std::string> user;
  json::Value tools = json::Array{};
  json::Value tool_choice = "auto";
  json::Value text = json::Object{{"format", json::Object{{"type", "text"}}}, {"verbosity", nullptr}};
  json::Value reasoning = json::Object{{"effort", nullptr}, {"summary", nullptr}};
};

/// What the Responses stream needs beyond the conversation.
struct ResponsesDetails {
  ResponsesEcho echo;
  /// Function name in the prompt → (namespace, local name).
  std::map<std::string, std::pair<std::string, std::string>, std::less<>> namespace_tools;
  std::vector<std::string> custom_tools;  ///< functions that were declared as custom tools
  bool has_client_tool_search = false;    ///< the function `tool_search` stands for a client side tool search
};

struct ConvertedRequest {
  std::string model;  ///< name in the request
  ModelVersion version = ModelVersion::v4_1;
  bool stream = false;
  bool include_usage = false;  ///< Chat: every chunk has a `usage` member (stream not asked for, or include_usage true)
  Conversation conversation;
  InferenceOptions inference;
  ParsingOptions parsing;
  ResponsesDetails responses;  ///< of a Responses request; defaults otherwise
};

/// Why a request was refused.
struct RequestError {
  enum class Stage {
    json,     ///< the body is not JSON; `message` says where
    body,     ///< JSON that does not fit the request type; `message` names the field
    convert,  ///< the content was rejected: `status` and `body` are the HTTP response
  };
  Stage stage = Stage::convert;
  int status = 400;
  std::string body;     ///< exact JSON response body (all stages)
  std::string message;  ///< sentence for a person
};

[[nodiscard]] std::expected<ConvertedRequest, RequestError> convert(Api api, std::string_view body, const ConvertOptions& options);

// The two halves of it, for callers that look at the body or change it in between.
[[nodiscard]] std::expected<json::Value, RequestError> parse_body(std::string_view body);
[[nodiscard]] std::expected<ConvertedRequest, RequestError> convert_body(Api api, json::Value body, const ConvertOptions& options);

/// max_tokens for the engine: the requested number, or the default of the mode lowered to what the context leaves (at least 1).
/// `prompt_tokens` counts every image at its full size. Error: the request does not fit `context_limit`.
[[nodiscard]] std::expected<std::uint32_t, RequestError> resolve_max_tokens(const ConvertedRequest& request, std::uint64_t prompt_tokens,
                                                                            std::uint64_t context_limit);

}  // namespace deepinfer::recipe
