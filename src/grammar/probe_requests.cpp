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
