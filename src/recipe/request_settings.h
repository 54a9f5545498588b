// Settings that mean the same in all three APIs: thinking, effort, sampling, stop sequences, limits, parsing and constraint.
// The readers of the three bodies fill the plain structs, the converters call the functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/body_reader.h"
#include "recipe/convert.h"
#include "recipe/request_error.h"

namespace deepinfer::recipe {

/// Effort as asked for, aliases resolved (minimal is low, medium is high, ultra is max).
enum class RequestedEffort { none, low, high, xhigh, max };

[[nodiscard]] std::span<const Choice<RequestedEffort>> effort_choices();
/// `thinking.type`: enabled and adaptive mean on.
[[nodiscard]] std::span<const Choice<ThinkingMode>> thinking_choices();
[[nodiscard]] std::span<const Choice<ImageDetail>> image_detail_choices();

struct Thinking {
  ThinkingMode mode = ThinkingMode::on;
  std::optional<ReasoningEffort> effort;  ///< set exactly when thinking
};

/// An explicit mode wins over the effort, the effort over the default.
[[nodiscard]] Thinking resolve_thinking(std::optional<ThinkingMode> mode, std::optional<RequestedEffort> effort, ThinkingMode default_mode);

/// The version of `model`, or the refusal that lists the accepted names.
[[nodiscard]] std::expected<ModelVersion, RequestError> find_model(std::string_view model, const ConvertOptions& options);

struct StopSetting {
  std::vector<std::string> sequences;
  bool is_list = true;  ///< false: a single string, which is how an error names it
};

[[nodiscard]] Verdict check_stop(const StopSetting& stop);

/// Range check; thinking mode then samples at 1.
[[nodiscard]] std::expected<float, RequestError> resolve_temperature(std::optional<float> requested, ThinkingMode mode);
/// Range check, then the value that the model version wants in this mode, with or without tools in the finished conversation.
[[nodiscard]] std::expected<float, RequestError> resolve_top_p(std::optional<float> requested, const Conversation& conversation,
                                                               ModelVersion version);

/// Largest accepted number of reply tokens in this mode.
[[nodiscard]] std::uint32_t max_tokens_bound(ThinkingMode mode, const ConvertOptions& options);
[[nodiscard]] Verdict check_max_tokens(std::uint32_t requested, std::uint32_t bound);

/// Fills `request.parsing` (but stop sequences) and `request.inference.output_constraint` from the finished conversation.
/// `constraint_schema` is the normalised schema of a strict json_schema format; the conversation keeps the original.
void derive_reply_options(ConvertedRequest& request, const std::optional<json::Value>& constraint_schema);

/// Whether some message has the word "json", in any ASCII case, in its content.
[[nodiscard]] bool any_content_mentions_json(const Conversation& conversation);

/// Whether an assistant call id says that its turn had an empty thinking block.
/// Officially only in ids of two-digit calls; improved: whatever the number.
[[nodiscard]] bool marks_empty_thinking(std::string_view call_id, Conformance conformance);

struct ReasoningRule {
  MissingReasoning behaviour = MissingReasoning::fill_empty;
  bool has_tools = false;  ///< the request declares tools, whatever the choice
  std::string_view field;  ///< name of the missing member in the refusal
  Conformance conformance = Conformance::official;
};

/// Chat mode: reasoning is dropped. Thinking mode: missing reasoning becomes ""; when rejecting, an assistant message after the last
/// user message must have it if it has calls or the request has tools.
[[nodiscard]] Verdict settle_reasoning(Conversation& conversation, const ReasoningRule& rule);

}  // namespace deepinfer::recipe
