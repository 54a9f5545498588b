#include "recipe/request_settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "recipe/json_style.h"

namespace deepinfer::recipe {

namespace {

constexpr std::array kEfforts{
    Choice<RequestedEffort>{"none", RequestedEffort::none}, Choice<RequestedEffort>{"minimal", RequestedEffort::low},
    Choice<RequestedEffort>{"low", RequestedEffort::low},   Choice<RequestedEffort>{"medium", RequestedEffort::high},
    Choice<RequestedEffort>{"high", RequestedEffort::high}, Choice<RequestedEffort>{"xhigh", RequestedEffort::xhigh},
    Choice<RequestedEffort>{"ultra", RequestedEffort::max}, Choice<RequestedEffort>{"max", RequestedEffort::max},
};

constexpr std::array kThinkingModes{
    Choice<ThinkingMode>{"adaptive", ThinkingMode::on},
    Choice<ThinkingMode>{"enabled", ThinkingMode::on},
    Choice<ThinkingMode>{"disabled", ThinkingMode::off},
};

constexpr std::array kImageDetails{
    Choice<ImageDetail>{"low", ImageDetail::low},
    Choice<ImageDetail>{"high", ImageDetail::high},
    Choice<ImageDetail>{"original", ImageDetail::original},
    Choice<ImageDetail>{"auto", ImageDetail::automatic},
};

constexpr std::size_t kMaxStopSequences = 16;

ReasoningEffort tier_of(RequestedEffort effort) {
  switch (effort) {
    case RequestedEffort::low:
      return ReasoningEffort::low;
    case RequestedEffort::xhigh:
      return ReasoningEffort::xhigh;
    case RequestedEffort::max:
      return ReasoningEffort::max;
    case RequestedEffort::none:
    case RequestedEffort::high:
      return ReasoningEffort::high;
  }
  std::unreachable();
}

/// The tools as Chat Completions function tools, which is what a grammar is built from.
std::string tools_constraint(const std::vector<Tool>& tools) {
  std::string out = "[";
  for (const Tool& tool : tools) {
    out += out.size() > 1 ? "," : "";
    out += R"({"type":"function","function":{"name":)";
    json::append_string(out, tool.name);
    out += R"(,"description":)";
    if (tool.description) {
      json::append_string(out, *tool.description);
    } else {
      out += "null";
    }
    out += R"(,"parameters":)";
    append_compact_json(out, tool.parameters);
    out += R"(,"strict":)";
    out += !tool.strict ? "null" : *tool.strict ? "true" : "false";
    out += tool.defer_loading ? R"(},"defer_loading":true})" : "}}";
  }
  return out + "]";
}

std::optional<OutputConstraint> constraint_of(const Conversation& conversation, const std::optional<json::Value>& constraint_schema) {
  using Kind = OutputConstraint::Kind;
  if (!conversation.tools.empty()) {
    const bool is_required = conversation.tool_choice == ToolChoice::required;
    return OutputConstraint{is_required ? Kind::tool_call_required : Kind::tool_call, tools_constraint(conversation.tools)};
  }
  if (std::holds_alternative<JsonObjectFormat>(conversation.response_format)) {
    return OutputConstraint{Kind::json, ""};
  }
  if (const auto* schema = std::get_if<JsonSchemaFormat>(&conversation.response_format)) {
    return OutputConstraint{Kind::json, compact_json(constraint_schema ? *constraint_schema : schema->schema)};
  }
  if (const auto* regex = std::get_if<RegexFormat>(&conversation.response_format)) {
    return OutputConstraint{Kind::regex, regex->pattern};
  }
  return std::nullopt;
}

ThinkingStage initial_stage(const Conversation& conversation) {
  if (conversation.thinking_mode == ThinkingMode::off) {
    return ThinkingStage::none;
  }
  const AssistantMessage* last = conversation.messages.empty() ? nullptr : std::get_if<AssistantMessage>(&conversation.messages.back());
  if (last == nullptr || !last->prefix) {
    return ThinkingStage::reasoning_start;
  }
  if (!last->content.empty()) {
    return ThinkingStage::content_continuation;
  }
  const bool has_reasoning = last->reasoning_content && !last->reasoning_content->empty();
  return has_reasoning ? ThinkingStage::reasoning_continuation : ThinkingStage::reasoning_start;
}

/// "json" in any ASCII case.
bool mentions_json(std::string_view text) {
  constexpr std::string_view kWord = "json";
  return !std::ranges::search(text, kWord, [](char a, char b) { return (a | 0x20) == b; }).empty();
}

}  // namespace

std::span<const Choice<RequestedEffort>> effort_choices() { return kEfforts; }
std::span<const Choice<ThinkingMode>> thinking_choices() { return kThinkingModes; }
std::span<const Choice<ImageDetail>> image_detail_choices() { return kImageDetails; }

Thinking resolve_thinking(std::optional<ThinkingMode> mode, std::optional<RequestedEffort> effort, ThinkingMode default_mode) {
  if (!mode) {
    mode = !effort ? default_mode : *effort == RequestedEffort::none ? ThinkingMode::off : ThinkingMode::on;
  }
  if (*mode == ThinkingMode::off) {
    return {.mode = ThinkingMode::off, .effort = std::nullopt};
  }
  return {.mode = ThinkingMode::on, .effort = tier_of(effort.value_or(RequestedEffort::high))};
}

std::expected<ModelVersion, RequestError> find_model(std::string_view model, const ConvertOptions& options) {
  const auto found = options.model_versions.find(model);
  if (found != options.model_versions.end()) {
    return found->second;
  }
  std::string names;
  for (const auto& [name, version] : options.model_versions) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return reject("The supported API model names are " + names + ", but you passed " + std::string(model) + ".");
}

Verdict check_stop(const StopSetting& stop) {
  if (stop.sequences.size() > kMaxStopSequences) {
    return reject("Stop string array too long: " + std::to_string(stop.sequences.size()));
  }
  for (std::size_t i = 0; i < stop.sequences.size(); ++i) {
    if (stop.sequences[i].empty()) {
      const std::string name = stop.is_list ? "stop[" + std::to_string(i) + "]" : "stop";
      return reject("Invalid '" + name + "': empty string. Expected a string with minimum length 1, but got an empty string instead.");
    }
  }
  return {};
}

std::expected<float, RequestError> resolve_temperature(std::optional<float> requested, ThinkingMode mode) {
  const float temperature = requested.value_or(1.0F);
  if (temperature < 0.0F || temperature > 2.0F) {
    return reject("Invalid temperature value, the valid range of temperature is [0, 2]");
  }
  return mode == ThinkingMode::on ? 1.0F : temperature;
}

std::expected<float, RequestError> resolve_top_p(std::optional<float> requested, const Conversation& conversation, ModelVersion version) {
  constexpr float kThinkingTopP = 0.95F;
  const float top_p = requested.value_or(1.0F);
  if (top_p <= 0.0F || top_p > 1.0F) {
    return reject("Invalid top_p value, the valid range of top_p is (0, 1.0]");
  }
  const bool is_thinking = conversation.thinking_mode == ThinkingMode::on;
  if (version == ModelVersion::v4) {
    const float thinking_top_p = conversation.tools.empty() ? 1.0F : kThinkingTopP;
    return is_thinking ? thinking_top_p : top_p;
  }
  return is_thinking ? std::max(kThinkingTopP, top_p) : 1.0F;
}

std::uint32_t max_tokens_bound(ThinkingMode mode, const ConvertOptions& options) {
  return mode == ThinkingMode::on ? options.thinking_max_tokens_upper_bound : options.non_thinking_max_tokens_upper_bound;
}

Verdict check_max_tokens(std::uint32_t requested, std::uint32_t bound) {
  if (requested < 1 || requested > bound) {
    return reject("Invalid max_tokens value, the valid range of max_tokens is [1, " + std::to_string(bound) + "]");
  }
  return {};
}

void derive_reply_options(ConvertedRequest& request, const std::optional<json::Value>& constraint_schema) {
  const Conversation& conversation = request.conversation;
  const bool has_tools = !conversation.tools.empty();
  request.parsing.parse_tool_calls = has_tools;
  request.parsing.starts_in_tool_calls = has_tools && conversation.tool_choice == ToolChoice::required;
  request.parsing.parse_json_output = std::holds_alternative<JsonObjectFormat>(conversation.response_format);
  request.parsing.thinking_initial_stage = initial_stage(conversation);
  request.inference.output_constraint = constraint_of(conversation, constraint_schema);
}

bool any_content_mentions_json(const Conversation& conversation) {
  return std::ranges::any_of(conversation.messages, [](const Message& message) {
    return std::visit(
        [](const auto& role) {
          if constexpr (requires { role.content.text; }) {
            return mentions_json(role.content.text);
          } else {
            return mentions_json(role.content);
          }
        },
        message);
  });
}

bool marks_empty_thinking(std::string_view call_id, Conformance conformance) {
  constexpr std::size_t kStartBytes = 5;  // "call_"; the official check looks at nothing before the marks
  constexpr std::size_t kIndexBytes = 2;
  const auto has = [call_id](std::size_t at, std::string_view mark) {
    return call_id.size() >= at && call_id.substr(at).starts_with(mark);
  };
  if (conformance == Conformance::improved) {
    const std::size_t end = call_id.find_first_not_of("0123456789", kStartBytes);
    return call_id.starts_with("call_") && end != std::string_view::npos && has(end, "_ET_");
  }
  const bool is_ascii = std::ranges::all_of(call_id, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return is_ascii && (has(kStartBytes, "_ET") || has(kStartBytes + kIndexBytes, "_ET_"));
}

Verdict settle_reasoning(Conversation& conversation, const ReasoningRule& rule) {
  const auto is_user = [](const Message& message) { return std::holds_alternative<UserMessage>(message); };
  const auto last_user = std::ranges::find_if(conversation.messages.rbegin(), conversation.messages.rend(), is_user).base();
  for (auto message = conversation.messages.begin(); message != conversation.messages.end(); ++message) {
    auto* assistant = std::get_if<AssistantMessage>(&*message);
    if (assistant == nullptr) {
      continue;
    }
    if (conversation.thinking_mode == ThinkingMode::off) {
      assistant->reasoning_content.reset();
      continue;
    }
    if (assistant->reasoning_content) {
      continue;
    }
    const std::span<const ToolCall> calls =
        assistant->tool_calls ? std::span<const ToolCall>(*assistant->tool_calls) : std::span<const ToolCall>();
    const bool is_needed = message >= last_user && (rule.has_tools || !calls.empty());
    if (rule.behaviour == MissingReasoning::reject && is_needed &&
        std::ranges::none_of(calls, [&rule](const ToolCall& call) { return marks_empty_thinking(call.id, rule.conformance); })) {
      return reject("The `" + std::string(rule.field) + "` in the thinking mode must be passed back to the API.");
    }
    assistant->reasoning_content = "";
  }
  return {};
}

}  // namespace deepinfer::recipe
