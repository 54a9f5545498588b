#include "recipe/tools.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "recipe/json_style.h"
#include "recipe/schema_check.h"
#include "recipe/strict_schema.h"

namespace deepinfer::recipe {

namespace {

constexpr std::size_t kMaxNameBytes = 128;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool is_strict(const Tool& tool) { return tool.strict.value_or(false); }

std::expected<json::Value, RequestError> checked_parameters(std::string_view name, std::optional<json::Value> parameters) {
  if (!parameters) {
    return json::Value(json::Object{});
  }
  if (const std::optional<std::string> problem = schema_problem(*parameters)) {
    return reject("Invalid schema for function '" + std::string(name) + "': " + *problem);
  }
  const json::Value* type = parameters->find("type");
  if (type == nullptr || *type != json::Value("object")) {
    return reject("Invalid schema for function '" + std::string(name) +
                  R"(': schema must be a JSON Schema of 'type: "object"', got 'type: )" + (type == nullptr ? "null" : compact_json(*type)) +
                  "'.");
  }
  return std::move(*parameters);
}

}  // namespace

Verdict check_tool_name(std::string_view name, std::string_view place) {
  const std::string begin = "Invalid '" + std::string(place) + "': ";
  if (name.empty()) {
    return reject(begin + "empty string. Expected a string with minimum length 1, but got an empty string instead.");
  }
  if (name.size() > kMaxNameBytes) {
    return reject(begin + "string too long. Expected a string with maximum length " + std::to_string(kMaxNameBytes) +
                  ", but got a string with length " + std::to_string(name.size()) + " instead.");
  }
  if (!std::ranges::all_of(name, is_name_character)) {
    return reject(begin + "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.");
  }
  return {};
}

std::expected<std::vector<Tool>, RequestError> build_tools(std::vector<ToolDeclaration> declarations, Conformance conformance) {
  std::vector<Tool> tools;
  tools.reserve(declarations.size());
  std::unordered_set<std::string> names;
  for (ToolDeclaration& declaration : declarations) {
    if (!names.insert(declaration.name).second) {
      return reject("Tool names must be unique.");
    }
    auto parameters = declaration.strict.value_or(false) ? strict_parameters(declaration.parameters, conformance)
                                                         : checked_parameters(declaration.name, std::move(declaration.parameters));
    if (!parameters) {
      return std::unexpected(std::move(parameters.error()));
    }
    tools.push_back(Tool{.name = std::move(declaration.name),
                         .description = std::move(declaration.description),
                         .parameters = std::move(*parameters),
                         .strict = declaration.strict,
                         .defer_loading = declaration.defer_loading});
  }
  return tools;
}

Verdict apply_tool_choice(Conversation& conversation, std::vector<Tool> tools, const RequestedToolChoice& choice) {
  using Kind = RequestedToolChoice::Kind;
  if (choice.kind == Kind::none) {
    conversation.tool_choice = ToolChoice::none;
    return {};
  }
  if (tools.empty()) {
    return {};
  }
  if (choice.kind == Kind::named) {
    const auto named = std::ranges::find(tools, choice.name, &Tool::name);
    if (named == tools.end()) {
      return reject_unknown_function(choice.name);
    }
    Tool kept = std::move(*named);
    tools.clear();
    tools.push_back(std::move(kept));
  }
  if (choice.kind == Kind::named || choice.kind == Kind::required) {
    if (conversation.thinking_mode == ThinkingMode::on) {
      return reject("Thinking mode does not support this tool_choice");
    }
    conversation.tool_choice = ToolChoice::required;
  }
  conversation.tools = std::move(tools);
  return {};
}

Tool named_tool(std::string name) {
  return Tool{.name = std::move(name), .description = std::nullopt, .parameters = {}, .strict = std::nullopt, .defer_loading = false};
}

void settle_system_tools(Conversation& conversation) {
  const auto settle = [&conversation](Message& message) {
    auto* system = std::get_if<SystemMessage>(&message);
    if (system == nullptr || !system->tools) {
      return false;
    }
    std::vector<Tool> kept;
    for (const Tool& named : *system->tools) {
      const auto tool = std::ranges::find(conversation.tools, named.name, &Tool::name);
      if (tool != conversation.tools.end()) {
        kept.push_back(*tool);
      }
    }
    system->tools = std::move(kept);
    return system->tools->empty() && system->content.text.empty();
  };
  std::erase_if(conversation.messages, settle);
}

std::unexpected<RequestError> reject_unknown_function(std::string_view name) {
  return reject("Invalid value for 'tool_call': no function named '" + std::string(name) + "' was specified in the 'tools' parameter.");
}

Verdict check_strict_mix(std::span<const Tool> tools, bool has_response_format) {
  const auto num_strict = std::ranges::count_if(tools, is_strict);
  if (num_strict == 0) {
    return {};
  }
  if (num_strict != std::ssize(tools)) {
    return reject("Cannot use strict tool with non-strict tool in the same request");
  }
  if (has_response_format) {
    return reject("response_format should not be used with tools");
  }
  return {};
}

}  // namespace deepinfer::recipe
