#include "grammar/probe_requests.h"

#include "grammar/probe.h"

namespace deepinfer::grammar {

namespace {

Result<Layout> layout_from_json(const json::Value* separators, const json::Value* indent) {
  Layout out;
  if (separators != nullptr) {
    const json::Array* pair = separators->as_array();
    const bool is_pair = pair != nullptr && pair->size() == 2 && (*pair)[0].as_string() != nullptr && (*pair)[1].as_string() != nullptr;
    if (!is_pair) {
      return fail(ErrorKind::invalid_argument, "options.separators must be [item, key]");
    }
    out.item_separator = *(*pair)[0].as_string();
    out.key_separator = *(*pair)[1].as_string();
  }
  if (indent != nullptr && !indent->is_null()) {
    const auto value = indent->as_number() != nullptr ? indent->as_number()->as_int64() : std::nullopt;
    if (!value || *value < 0 || *value > 64) {
      return fail(ErrorKind::invalid_argument, "options.indent must be an integer from 0 to 64");
    }
    out.indent = static_cast<std::int32_t>(*value);
    if (separators == nullptr) {
      out.item_separator = ",";  // as json.dumps: lines already part the items
    }
  }
  return out;
}

Result<std::uint32_t> blanks_from_json(const json::Value& whitespace) {
  constexpr std::uint32_t kFlexible = 64;
  if (const std::string* name = whitespace.as_string()) {
    if (*name == "flexible" || *name == "compact") {
      return *name == "flexible" ? kFlexible : 0;
    }
  }
  const json::Value* most = whitespace.find("max");
  const auto value = most != nullptr && most->as_number() != nullptr ? most->as_number()->as_int64() : std::nullopt;
  if (!value || *value < 0 || *value > 65536) {
    return fail(ErrorKind::invalid_argument, "options.whitespace must be \"flexible\", \"compact\" or {\"max\": n}");
  }
  return static_cast<std::uint32_t>(*value);
}

template <class Choice>
Result<Choice> choice(const json::Value& options, std::string_view member, std::pair<std::string_view, Choice> first,
                      std::pair<std::string_view, Choice> second) {
  const json::Value* value = options.find(member);
  if (value == nullptr || (value->as_string() != nullptr && *value->as_string() == first.first)) {
    return first.second;
  }
  if (value->as_string() != nullptr && *value->as_string() == second.first) {
    return second.second;
  }
  return fail(ErrorKind::invalid_argument,
              "options." + std::string(member) + " must be \"" + std::string(first.first) + "\" or \"" + std::string(second.first) + "\"");
}

}  // namespace

Compiled<GrammarKind> kind_from_name(std::string_view name) {
  if (name == "json_schema") {
    return GrammarKind::json_schema;
  }
  if (name == "regex") {
    return GrammarKind::regex;
  }
  if (name == "ebnf") {
    return GrammarKind::ebnf;
  }
  if (name == "json_object") {
    return GrammarKind::json_object;
  }
  return refuse({.code = ErrorCode::bad_kind, .message = "unknown kind \"" + std::string(name) + "\""});
}

Result<CompileOptions> options_from_json(const json::Value* options) {
  CompileOptions out;
  if (options == nullptr || options->is_null()) {
    return out;
  }
  if (options->as_object() == nullptr) {
    return fail(ErrorKind::invalid_argument, "options must be an object");
  }
  const auto additional = choice<Additional>(*options, "additional", {"open", Additional::open}, {"closed", Additional::closed});
  const auto order = choice<PropertyOrder>(*options, "order", {"schema", PropertyOrder::schema}, {"any", PropertyOrder::any});
  const auto format = choice<FormatCheck>(*options, "format", {"assert", FormatCheck::assert_formats}, {"ignore", FormatCheck::ignore});
  if (!additional || !order || !format) {
    return std::unexpected(!additional ? additional.error() : !order ? order.error() : format.error());
  }
  out.additional = *additional;
  out.order = *order;
  out.format = *format;
  if (const json::Value* whitespace = options->find("whitespace")) {
    const Result<std::uint32_t> blanks = blanks_from_json(*whitespace);
    if (!blanks) {
      return std::unexpected(blanks.error());
    }
    out.max_blanks = *blanks;
  }
  const json::Value* separators = options->find("separators");
  const json::Value* indent = options->find("indent");
  if (separators != nullptr || indent != nullptr) {
    Result<Layout> layout = layout_from_json(separators, indent);
    if (!layout) {
      return std::unexpected(layout.error());
    }
    out.layout = std::move(*layout);
  }
  return out;
}

Result<std::vector<TokenId>> ids_from_json(const json::Value& request, std::string_view member) {
  std::vector<TokenId> out;
  const json::Value* value = request.find(member);
  if (value == nullptr || value->is_null()) {
    return out;
  }
  const json::Array* items = value->as_array();
  if (items == nullptr) {
    return fail(ErrorKind::invalid_argument, std::string(member) + " must be a list of ids");
  }
  for (const json::Value& item : *items) {
    const auto id = item.as_number() != nullptr ? item.as_number()->as_int64() : std::nullopt;
    if (!id || *id < 0 || *id > 0x7FFFFFFF) {
      return fail(ErrorKind::invalid_argument, std::string(member) + " must be a list of ids");
    }
    out.push_back(TokenId{static_cast<std::int32_t>(*id)});
  }
  return out;
}

namespace {

bool flag(const json::Value& object, std::string_view member, bool otherwise) {
  const json::Value* value = object.find(member);
  return value != nullptr && value->as_bool() != nullptr ? *value->as_bool() : otherwise;
}

std::unexpected<CompileError> bad(std::string message) {
  return refuse({.code = ErrorCode::invalid_schema, .message = std::move(message)});
}

std::optional<CompileError> read_tool_choice(const json::Value& spec, CompositeJob& job) {
  const json::Value* choice = spec.find("tool_choice");
  const std::string name = choice != nullptr && choice->as_string() != nullptr ? *choice->as_string() : "auto";
  if (name == "none" || name == "auto" || name == "required") {
    job.tool_use = name == "none" ? ToolUse::none : name == "auto" ? ToolUse::automatic : ToolUse::required;
    return std::nullopt;
  }
  job.tool_use = ToolUse::required;
  std::erase_if(job.tools, [&](const ToolDefinition& tool) { return tool.name != name; });
  return job.tools.empty() ? std::optional(bad("tool_choice names no tool").error()) : std::nullopt;
}

std::optional<CompileError> read_body(const json::Value& spec, CompositeJob& job) {
  const json::Value* body = spec.find("body");
  if (body == nullptr || body->is_null()) {
    return std::nullopt;
  }
  const json::Value* kind = body->find("kind");
  const json::Value* text = body->find("grammar");
  const Compiled<GrammarKind> known = kind_from_name(kind != nullptr && kind->as_string() != nullptr ? *kind->as_string() : "");
  const Result<CompileOptions> options = options_from_json(body->find("options"));
  const bool has_text = text != nullptr && text->as_string() != nullptr;
  if (!known || !options || (!has_text && *known != GrammarKind::json_object)) {
    return bad("body needs a kind, a grammar and options as compile has them").error();
  }
  job.body = CompositeJob::Body{.kind = *known, .text = has_text ? *text->as_string() : "", .options = *options};
  return std::nullopt;
}

}  // namespace

Compiled<CompositeJob> composite_from_json(const json::Value& request, CompositeForm form) {
  constexpr TokenId kThinkEnd{128822};
  CompositeJob job;
  const json::Value* text = request.find("grammar");
  Result<json::Value> parsed = fail(ErrorKind::invalid_argument, "grammar must be the text of a tools array");
  if (form == CompositeForm::tools_text && text != nullptr && text->as_string() != nullptr) {
    parsed = json::parse(*text->as_string(), {.max_depth = 256});
  }
  const json::Value* spec = request.find("spec");
  if (form == CompositeForm::spec && (spec == nullptr || spec->as_object() == nullptr)) {
    return bad("spec must be an object");
  }
  if (form == CompositeForm::tools_text && !parsed) {
    return bad(parsed.error().message);
  }
  const json::Value* tools = form == CompositeForm::spec ? spec->find("tools") : &*parsed;
  if (tools != nullptr && !tools->is_null()) {
    Compiled<std::vector<ToolDefinition>> read = tools_from_json(*tools);
    if (!read) {
      return refuse(std::move(read.error()));
    }
    job.tools = std::move(*read);
  }
  if (form == CompositeForm::tools_text) {
    job.tool_use = ToolUse::required;
    for (ToolDefinition& tool : job.tools) {
      tool.is_strict = true;
    }
    return job;
  }
  job.has_parallel_calls = flag(*spec, "parallel", true);
  const Result<std::vector<TokenId>> ends = ids_from_json(*spec, "end_ids");
  if (!ends) {
    return bad(ends.error().message);
  }
  if (flag(*spec, "reasoning", false)) {
    job.reasoning_end_ids = ends->empty() ? std::vector<TokenId>{kThinkEnd} : *ends;
  }
  if (const json::Value* bound = spec->find("bound_id"); bound != nullptr && bound->as_number() != nullptr) {
    job.bound_id = TokenId{static_cast<std::int32_t>(bound->as_number()->as_int64().value_or(0))};
  }
  auto error = job.tools.empty() ? std::nullopt : read_tool_choice(*spec, job);
  error = error ? error : read_body(*spec, job);
  if (error) {
    return refuse(*error);
  }
  job.block_is_open = job.tool_use == ToolUse::required && job.reasoning_end_ids.empty();
  return job;
}

json::Value error_json(const CompileError& error) {
  json::Object out{{"code", code_name(error.code)}, {"message", error.message}};
  if (!error.pointer.empty()) {
    out.set("pointer", error.pointer);
  }
  if (!error.keyword.empty()) {
    out.set("keyword", error.keyword);
  }
  if (!error.limit.empty()) {
    out.set("limit", error.limit);
  }
  if (error.line > 0) {
    out.set("line", static_cast<std::uint64_t>(error.line));
    out.set("column", static_cast<std::uint64_t>(error.column));
  }
  return out;
}

Result<Limits> limits_from_json(std::string_view overrides, Limits base) {
  const Result<json::Value> parsed = json::parse(overrides);
  if (!parsed || parsed->as_object() == nullptr) {
    return fail(ErrorKind::invalid_argument, "limits must be a JSON object");
  }
  for (const auto& [name, value] : *parsed->as_object()) {
    const auto number = value.as_number() != nullptr ? value.as_number()->as_int64() : std::nullopt;
    if (!number || *number < 0) {
      return fail(ErrorKind::invalid_argument, "limit \"" + name + "\" must be a non-negative integer");
    }
    const auto size = static_cast<std::size_t>(*number);
    if (name == "text_bytes") {
      base.text_bytes = size;
    } else if (name == "tools_bytes") {
      base.tools_bytes = size;
    } else if (name == "depth") {
      base.depth = static_cast<std::int32_t>(std::min<std::size_t>(size, 256));
    } else if (name == "compile_ms") {
      base.compile_time = std::chrono::milliseconds(*number);
    } else if (name == "compiled_bytes") {
      base.compiled_bytes = size;
    } else if (name == "states") {
      base.run.states = static_cast<std::uint32_t>(size);
    } else if (name == "items") {
      base.run.items = static_cast<std::uint32_t>(size);
    } else if (name == "cache_bytes") {
      base.cache_bytes = size;
    } else {
      return fail(ErrorKind::invalid_argument, "unknown limit \"" + name + "\"");
    }
  }
  return base;
}

}  // namespace deepinfer::grammar
