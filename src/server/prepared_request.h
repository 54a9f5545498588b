// A request body on its way to the engine: converted, its earlier turns restored, rendered, encoded, checked against the context.
// Not here: generation (completion.h), HTTP.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "engine/request.h"
#include "recipe/convert.h"
#include "recipe/render.h"
#include "server/constraint.h"
#include "server/request_extras.h"
#include "server/served_model.h"

namespace deepinfer::server {

class ResponseStore;
class TurnStore;

/// Why a request was not taken: the HTTP response to send.
struct Refusal {
  int status = 400;
  std::string body = {};     ///< exact JSON, in the form of the API
  std::string message = {};  ///< sentence for a person
};

/// A Refusal with a body in the form of `api`.
[[nodiscard]] Refusal refusal(recipe::Api api, int status, std::string message);
/// What a client hears about an error of the engine.
[[nodiscard]] int status_of(ErrorKind kind);

/// A request as its API body, with what lies around it.
struct CompletionRequest {
  recipe::Api api = recipe::Api::chat;
  std::string_view body;               ///< used during the call only
  std::string owner = {};              ///< whose turns and responses it may see
  TurnStore* turns = nullptr;          ///< absent: no turn is restored or kept
  ResponseStore* responses = nullptr;  ///< absent: no previous_response_id, nothing is kept
};

struct PreparedRequest {
  recipe::Api api = recipe::Api::chat;
  recipe::ConvertedRequest converted;
  RequestExtras extras;
  std::string id;          ///< of the reply
  std::uint64_t seed = 0;  ///< the body's, or random
  std::vector<TokenId> prompt;
  std::vector<engine::PromptImage> images = {};  ///< of the prompt, until its choices are submitted
  std::uint32_t max_tokens = 0;
  std::string previous_response_id = {};              ///< Responses: as in the body, or empty
  RequestedConstraint requested = {};                 ///< what the reply is to fit
  std::optional<grammar::CompositeJob> job = {};      ///< the grammar of the whole reply, to be compiled into `constraint`
  std::optional<engine::Constraint> constraint = {};  ///< for the engine; absent before it is compiled
  std::optional<json::Array> input_items = {};        ///< Responses that are to be kept: everything that was said before the reply
};

/// "chatcmpl-", "msg_" or "resp_" and 32 random hexadecimal digits.
[[nodiscard]] std::string new_response_id(recipe::Api api);
/// Unpredictable: for seeds and ids.
[[nodiscard]] std::uint64_t random_bits();
/// Seconds since 1970.
[[nodiscard]] std::int64_t unix_time();

/// A body as conversion understands it, and what it wants the reply to fit, whose schema stands in the conversation.
struct ConvertedBody {
  recipe::ConvertedRequest request;
  RequestedConstraint requested;
};
[[nodiscard]] std::expected<ConvertedBody, Refusal> convert(const ServedModel& model, recipe::Api api, json::Value body);
[[nodiscard]] std::expected<json::Value, Refusal> parse(recipe::Api api, std::string_view body);
/// Ids of a rendered prompt with the spans of its images. Refused: images that the model or this server does not take.
[[nodiscard]] std::expected<IllustratedIds, Refusal> encode_prompt(const ServedModel& model, recipe::Api api, const recipe::Prompt& prompt,
                                                                   Pixels pixels);

/// Gives `request` its constraint, or says why the client gets none.
[[nodiscard]] std::expected<void, Refusal> set_constraint(PreparedRequest& request, const grammar::CompileResult& compiled);

/// Refused: what conversion refuses, unknown earlier responses, images that are not taken, a prompt that does not fit, structured output
/// that is switched off.
[[nodiscard]] std::expected<PreparedRequest, Refusal> prepare(const ServedModel& model, const CompletionRequest& request);

}  // namespace deepinfer::server
