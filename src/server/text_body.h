// The body of POST /v1/completions: plain prompts instead of a conversation. What it may say and what of it is refused; no generation.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "server/prepared_request.h"
#include "server/request_extras.h"
#include "server/served_model.h"

namespace deepinfer::server {

/// One prompt: what the engine gets, and its text for `echo`.
struct TextPrompt {
  std::vector<TokenId> ids;
  std::string text;             ///< for `echo`
  std::size_t num_implied = 0;  ///< leading ids that the text does not show: the begin-of-sentence token
};

struct TextRequest {
  std::string model;
  std::vector<TextPrompt> prompts;
  RequestExtras extras;  ///< sampling complete but for the seed
  std::uint64_t seed = 0;
  std::uint32_t max_tokens = 0;  ///< 0: nothing is generated
  std::vector<std::string> stop;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  std::optional<std::int32_t> logprobs;  ///< alternatives per token, 0 … kMaxTextLogprobs
};

inline constexpr std::int32_t kMaxTextLogprobs = 20;
/// Prompts times n of one request at most.
inline constexpr std::size_t kMaxTextChoices = 128;

/// Members: model, prompt (text, ids, or a list of either), suffix, max_tokens (16), temperature (1), top_p (1), seed, stop, n, best_of (=
/// n), stream, stream_options.include_usage, echo, logprobs, and those of request_extras.h. A text prompt is encoded with its control
/// tokens behind a begin-of-sentence token; with `suffix` both are plain text between the tokens of fill-in-the-middle. Ids are taken as
/// they are.
[[nodiscard]] std::expected<TextRequest, Refusal> read_text_body(const ServedModel& model, std::string_view body);

}  // namespace deepinfer::server
