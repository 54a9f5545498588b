#include "recipe/responses_tools.h"

#include <array>
#include <utility>

#include "recipe/apply_patch_tool.h"
#include "recipe/json_style.h"

namespace deepinfer::recipe {

namespace {

using json::Array;
using json::Object;
using json::Value;

enum class ToolType { function, name_space, custom, web_search, dated_web_search, tool_search, unknown };
constexpr std::array kToolTypes{
    Choice<ToolType>{"function", ToolType::function},
    Choice<ToolType>{"namespace", ToolType::name_space},
    Choice<ToolType>{"custom", ToolType::custom},
    Choice<ToolType>{"web_search", ToolType::web_search},
    Choice<ToolType>{"web_search_2025_08_26", ToolType::dated_web_search},
    Choice<ToolType>{"tool_search", ToolType::tool_search},
};
constexpr std::array kNamespacedTypes{
    Choice<ToolType>{"function", ToolType::function},
    Choice<ToolType>{"custom", ToolType::custom},
};
constexpr std::array kExecutions{
    Choice<ToolSearchExecution>{"client", ToolSearchExecution::client},
    Choice<ToolSearchExecution>{"server", ToolSearchExecution::server},
};
using Word = Choice<std::string_view>;
constexpr std::array kContextSizes{Word{"low", "low"}, Word{"medium", "medium"}, Word{"high", "high"}};

template <class T>
Value or_null(const std::optional<T>& value) {
  return value ? Value(*value) : Value();
}

// Reading.

ToolDeclaration read_function(const Fields& fields) {
  return {.name = fields.text("name"),
          .description = fields.optional_text("description"),
          .parameters = fields.any("parameters"),
          .strict = fields.optional_boolean("strict")};
}

ResponsesNamespacedTool read_namespaced_tool(Reader reader) {
  const Fields fields(reader);
  if (fields.tag<ToolType>("type", kNamespacedTypes) == ToolType::custom) {
    return ResponsesCustomTool{fields.text("name")};
  }
  return read_function(fields);
}

ResponsesWebSearch read_web_search(const Fields& fields, std::string_view type) {
  const auto read_location = [](Reader reader) -> Value {
    const Fields members(reader);
    return Object{{"city", or_null(members.optional_text("city"))},
                  {"country", or_null(members.optional_text("country"))},
                  {"region", or_null(members.optional_text("region"))},
                  {"timezone", or_null(members.optional_text("timezone"))}};
  };
  return {.type = type,
          .search_context_size = or_null(fields.optional_choice<std::string_view>("search_context_size", kContextSizes)),
          .user_location = fields.optional("user_location", read_location).value_or(Value())};
}

ToolType type_named(std::string_view name) {
  for (const Choice<ToolType>& type : kToolTypes) {
    if (type.name == name) {
      return type.value;
    }
  }
  return ToolType::unknown;
}

ToolType read_type(const Fields& fields) {
  return fields.required("type", [](Reader reader) { return type_named(reader.text()); });
}

/// The official reader takes ["some name"] for a tool of that type without members, and passes over unknown types.
bool is_unknown_type_alone(const json::Value& value) {
  const Array* const list = value.as_array();
  return list != nullptr && list->size() == 1 && list->front().as_string() != nullptr &&
         type_named(*list->front().as_string()) == ToolType::unknown;
}

ResponsesTool read_tool(Reader reader) {
  if (is_unknown_type_alone(reader.value())) {
    return ResponsesUnknownTool{};
  }
  const Fields fields(reader);
  const ToolType type = read_type(fields);
  if (reader.misfit().found()) {
    return ResponsesUnknownTool{};
  }
  switch (type) {
    case ToolType::function:
      return read_function(fields);
    case ToolType::name_space:
      return ResponsesNamespace{.name = fields.text("name"),
                                .description = fields.optional_text("description"),
                                .tools = fields.required("tools", [](Reader tools) { return tools.list(read_namespaced_tool); })};
    case ToolType::custom:
      return ResponsesCustomTool{fields.text("name")};
    case ToolType::web_search:
      return read_web_search(fields, "web_search");
    case ToolType::dated_web_search:
      return read_web_search(fields, "web_search_2025_08_26");
    case ToolType::tool_search:
      return ResponsesToolSearch{.execution = fields.optional_choice<ToolSearchExecution>("execution", kExecutions),
                                 .description = fields.optional_text("description"),
                                 .parameters = fields.any("parameters")};
    case ToolType::unknown:
      return ResponsesUnknownTool{};
  }
  std::unreachable();
}

// Reporting.

Object report(const ToolDeclaration& tool) {
  return Object{{"type", "function"},
                {"name", tool.name},
                {"description", or_null(tool.description)},
                {"parameters", or_null(tool.parameters)},
                {"strict", or_null(tool.strict)}};
}

Object report(const ResponsesCustomTool& tool) { return Object{{"type", "custom"}, {"name", tool.name}}; }

Object report_namespaced(const ResponsesNamespacedTool& tool) {
  return std::visit([](const auto& kind) { return report(kind); }, tool);
}

Object report(const ResponsesNamespace& group) {
  Array tools;
  for (const ResponsesNamespacedTool& tool : group.tools) {
    tools.emplace_back(report_namespaced(tool));
  }
  return Object{{"type", "namespace"}, {"name", group.name}, {"description", or_null(group.description)}, {"tools", std::move(tools)}};
}

Object report(const ResponsesWebSearch& tool) {
  return Object{{"type", tool.type}, {"search_context_size", tool.search_context_size}, {"user_location", tool.user_location}};
}

Object report(const ResponsesToolSearch& tool) {
  Value execution;
  if (tool.execution) {
    execution = *tool.execution == ToolSearchExecution::client ? "client" : "server";
  }
  return Object{{"type", "tool_search"},
                {"execution", std::move(execution)},
                {"description", or_null(tool.description)},
                {"parameters", or_null(tool.parameters)}};
}

struct Reporter {
  Array& out;

  void operator()(const ResponsesUnknownTool&) const {}
  void operator()(const auto& tool) const { out.emplace_back(report(tool)); }
};

}  // namespace

std::vector<ResponsesTool> read_responses_tools(Reader reader) { return reader.list(read_tool); }

std::span<const Choice<ToolSearchExecution>> tool_search_executions() { return kExecutions; }

Array report_tools(std::span<const ResponsesTool> tools) {
  Array out;
  for (const ResponsesTool& tool : tools) {
    std::visit(Reporter{out}, tool);
  }
  return out;
}

Result<std::string> tool_search_text(std::span<const ResponsesTool> tools) {
  Array out;
  for (const ResponsesTool& tool : tools) {
    if (std::holds_alternative<ResponsesUnknownTool>(tool)) {
      return fail(ErrorKind::unsupported, "the enum variant ResponsesTool::Unsupported cannot be serialized");
    }
    const auto* group = std::get_if<ResponsesNamespace>(&tool);
    if (group == nullptr) {
      std::visit(Reporter{out}, tool);
      continue;
    }
    for (const ResponsesNamespacedTool& member : group->tools) {
      Object text = report_namespaced(member);
      text.append("namespace", Object{{"name", group->name}, {"description", or_null(group->description)}});
      out.emplace_back(std::move(text));
    }
  }
  return compact_json(out);
}

std::string qualified_name(std::string_view name_space, std::string_view name, ModelVersion version) {
  return std::string(name_space) + (version == ModelVersion::v4 ? "__" : "::") + std::string(name);
}

Verdict ResponsesFunctions::add(std::vector<ResponsesTool> tools, const std::string& place) {
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (Verdict verdict = add_tool(tools[i], place + "[" + std::to_string(i) + "]"); !verdict) {
      return verdict;
    }
  }
  return {};
}

Verdict ResponsesFunctions::add_tool(ResponsesTool& tool, const std::string& place) {
  if (auto* function = std::get_if<ToolDeclaration>(&tool)) {
    return add_function(std::move(*function), place);
  }
  if (auto* group = std::get_if<ResponsesNamespace>(&tool)) {
    return add_namespace(*group, place);
  }
  if (const auto* custom = std::get_if<ResponsesCustomTool>(&tool)) {
    return add_custom(*custom);
  }
  if (auto* search = std::get_if<ResponsesToolSearch>(&tool)) {
    add_tool_search(*search);
  } else if (std::holds_alternative<ResponsesWebSearch>(tool) && web_search_ == WebSearch::reject) {
    return reject("Server tools are not supported");
  }
  return {};
}

Verdict ResponsesFunctions::add_function(ToolDeclaration declaration, const std::string& place) {
  if (Verdict verdict = check_tool_name(declaration.name, place + ".name"); !verdict) {
    return verdict;
  }
  declare(std::move(declaration));
  return {};
}

Verdict ResponsesFunctions::add_namespace(ResponsesNamespace& group, const std::string& place) {
  if (Verdict verdict = check_tool_name(group.name, place + ".name"); !verdict) {
    return verdict;
  }
  std::unordered_set<std::string> local_names;
  for (std::size_t i = 0; i < group.tools.size(); ++i) {
    const std::string tool_place = place + ".tools[" + std::to_string(i) + "]";
    if (const auto* custom = std::get_if<ResponsesCustomTool>(&group.tools[i])) {
      return reject("Currently custom tools are not allowed inside a namespace. Found custom tool '" + custom->name + "' in " + tool_place +
                    ".");
    }
    auto& declaration = std::get<ToolDeclaration>(group.tools[i]);
    if (Verdict verdict = check_tool_name(declaration.name, tool_place + ".name"); !verdict) {
      return verdict;
    }
    if (!local_names.insert(declaration.name).second) {
      return reject("Tool names within a namespace must be unique.");
    }
    std::string name = free_name(qualified_name(group.name, declaration.name, version_));
    namespaced_names_.insert(name);
    if (!is_found_) {
      details_.namespace_tools[name] = {group.name, std::move(declaration.name)};
    }
    declaration.name = std::move(name);
    const bool shows_description = version_ != ModelVersion::v4 && group.description && !group.description->empty();
    if (shows_description) {
      declaration.description = *group.description + "\n" + declaration.description.value_or("");
    }
    declare(std::move(declaration));
  }
  return {};
}

std::string ResponsesFunctions::free_name(const std::string& wanted) const {
  std::string name = wanted;
  for (int suffix = 1; namespaced_names_.contains(name); ++suffix) {
    name = wanted + "_" + std::to_string(suffix);
  }
  return name;
}

Verdict ResponsesFunctions::add_custom(const ResponsesCustomTool& tool) {
  if (tool.name != kApplyPatch) {
    return reject("Unsupported custom tool: '" + tool.name + "'. Only '" + std::string(kApplyPatch) + "' is supported.");
  }
  details_.custom_tools.push_back(tool.name);
  declare(apply_patch_declaration(version_));
  return {};
}

/// Only a search that the client runs is a function; one that the server would run is ignored. V4 models are shown none.
void ResponsesFunctions::add_tool_search(ResponsesToolSearch& tool) {
  if (tool.execution != ToolSearchExecution::client) {
    return;
  }
  details_.has_client_tool_search = true;
  if (version_ == ModelVersion::v4) {
    return;
  }
  declare(ToolDeclaration{.name = "tool_search",
                          .description = std::move(tool.description),
                          .parameters = std::move(tool.parameters),
                          .strict = std::nullopt,
                          .defer_loading = false});
}

void ResponsesFunctions::declare(ToolDeclaration declaration) {
  declaration.defer_loading = is_found_;
  declarations_.push_back(std::move(declaration));
}

}  // namespace deepinfer::recipe
