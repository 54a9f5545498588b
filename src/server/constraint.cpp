#include "server/constraint.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace deepinfer::server {
namespace {

using grammar::GrammarKind;
using Body = grammar::CompositeJob::Body;

const std::string* text_of(const json::Value* value) { return value == nullptr ? nullptr : value->as_string(); }
bool flag_of(const json::Value* value) { return value != nullptr && value->as_bool() != nullptr && *value->as_bool(); }
/// A member of an object that may be absent itself.
const json::Value* member(const json::Value* value, std::string_view name) { return value == nullptr ? nullptr : value->find(name); }

Body schema_body(const json::Value& schema, bool is_strict) {
  Body out{.kind = GrammarKind::json_schema, .text = json::to_text(schema), .options = {}};
  out.options.additional = is_strict ? grammar::Additional::closed : grammar::Additional::open;
  return out;
}

/// `where` holds the schema, the format's type and whether it is strict: response_format.json_schema, or a format of the newer APIs.
void take_schema(RequestedConstraint& out, const json::Value* where, std::string param) {
  if (const json::Value* const schema = member(where, "schema")) {
    out.body = schema_body(*schema, flag_of(member(where, "strict")));
    out.param = std::move(param);
  }
}

void take_chat_format(RequestedConstraint& out, json::Value& body, BodyForms forms) {
  json::Value* const format = body.as_object()->find("response_format");
  const std::string* const type = text_of(member(format, "type"));
  if (type == nullptr) {
    return;
  }
  if (*type == "json_object") {
    out.body = Body{.kind = GrammarKind::json_object, .text = {}, .options = {}};
    out.param = "response_format";
  } else if (*type == "json_schema") {
    take_schema(out, member(format, "json_schema"), "response_format.json_schema.schema");
  } else if (*type == "regex") {
    if (const std::string* const regex = text_of(member(format, "regex"))) {
      out.body = Body{.kind = GrammarKind::regex, .text = *regex, .options = {}};
      out.param = "response_format.regex";
    }
  } else if (*type == "ebnf" && forms == BodyForms::extended) {
    if (const std::string* const grammar = text_of(member(format, "grammar"))) {
      out.body = Body{.kind = GrammarKind::ebnf, .text = *grammar, .options = {}};
      out.param = "response_format.grammar";
      *format = json::Object{{"type", "text"}};  // a form of ours: the prompt says nothing about it
    }
  }
}

void take_responses_format(RequestedConstraint& out, const json::Value& body) {
  const json::Value* const format = member(body.find("text"), "format");
  const std::string* const type = text_of(member(format, "type"));
  if (type != nullptr && *type == "json_object") {
    out.body = Body{.kind = GrammarKind::json_object, .text = {}, .options = {}};
    out.param = "text.format";
  } else if (type != nullptr && *type == "json_schema") {
    take_schema(out, format, "text.format.schema");
  }
}

void take_messages_format(RequestedConstraint& out, const json::Value& body) {
  const json::Value* format = member(body.find("output_config"), "format");
  std::string param = "output_config.format.schema";
  if (format == nullptr || format->is_null()) {
    format = body.find("output_format");
    param = "output_format.schema";
  }
  const std::string* const type = text_of(member(format, "type"));
  if (type != nullptr && *type == "json_schema") {
    take_schema(out, format, std::move(param));
    if (const json::Value* const schema = format->find("schema")) {
      out.prompt_schema = *schema;
    }
  }
}

/// Messages does not know `strict`, so that conversion keeps those schemas whole; the other APIs reduce them.
void take_tools(RequestedConstraint& out, const json::Value& body) {
  const json::Value* const tools = body.find("tools");
  const json::Array* const list = tools == nullptr ? nullptr : tools->as_array();
  if (list == nullptr) {
    return;
  }
  for (const json::Value& entry : *list) {
    const json::Value* const function = entry.find("function");
    const json::Value& tool = function != nullptr ? *function : entry;
    const std::string* const name = text_of(tool.find("name"));
    if (name == nullptr || !flag_of(tool.find("strict"))) {
      continue;
    }
    const json::Value* const parameters = tool.find("parameters");
    const json::Value* const schema = parameters != nullptr ? parameters : tool.find("input_schema");
    out.strict_parameters[*name] = schema == nullptr || schema->is_null() ? "" : json::to_text(*schema);
  }
}

std::optional<TokenId> id_of(const json::Value& value) {
  const json::Number* const number = value.as_number();
  const std::optional<std::int64_t> id = number == nullptr ? std::nullopt : number->as_int64();
  if (!id || *id < 0 || *id > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  return TokenId{static_cast<std::int32_t>(*id)};
}

std::unexpected<Error> refuse(std::string message) { return fail(ErrorKind::invalid_argument, std::move(message)); }

/// When the grammar of so_args starts.
Result<void> take_trigger(RequestedConstraint& out, const json::Value& arguments) {
  const json::Value* const triggers = arguments.find("trigger_token_ids");
  if (triggers != nullptr && !triggers->is_null()) {
    const json::Array* const list = triggers->as_array();
    if (list == nullptr) {
      return refuse("so_args.trigger_token_ids: a list of token ids is needed");
    }
    for (const json::Value& item : *list) {
      const std::optional<TokenId> id = id_of(item);
      if (!id) {
        return refuse("so_args.trigger_token_ids: token ids are integers of at least 0");
      }
      out.trigger_ids.push_back(*id);
    }
  }
  const json::Value* const bound = arguments.find("bound_token_id");
  if (bound != nullptr && !bound->is_null()) {
    out.bound_id = id_of(*bound);
    if (!out.bound_id || out.trigger_ids.empty()) {
      return refuse("so_args.bound_token_id: an integer of at least 0 beside trigger_token_ids is needed");
    }
  }
  return {};
}

Result<void> take_so_args(RequestedConstraint& out, json::Value& body) {
  const json::Value* const arguments = body.find("so_args");
  if (arguments == nullptr || arguments->is_null()) {
    return {};
  }
  if (out.body) {
    return refuse("so_args and " + out.param + " exclude each other");
  }
  constexpr std::array<std::pair<std::string_view, GrammarKind>, 3> kKinds{
      {{"json", GrammarKind::json_schema}, {"regex", GrammarKind::regex}, {"ebnf", GrammarKind::ebnf}}};
  const std::string* const type = text_of(arguments->find("schema_type"));
  const auto* const kind = std::ranges::find_if(kKinds, [type](const auto& entry) { return type != nullptr && entry.first == *type; });
  if (kind == kKinds.end()) {
    return refuse("so_args.schema_type: \"json\", \"regex\" or \"ebnf\" is needed");
  }
  const std::string* const text = text_of(arguments->find("schema"));
  if (text == nullptr) {
    return refuse("so_args.schema: a text is needed");
  }
  out.body = Body{.kind = kind->second, .text = *text, .options = {.additional = grammar::Additional::closed}};
  out.param = "so_args.schema";
  out.covers_all = true;
  if (auto trigger = take_trigger(out, *arguments); !trigger) {
    return trigger;
  }
  body.as_object()->erase("so_args");
  return {};
}

grammar::ToolUse tool_use(const recipe::Conversation& conversation, ToolConstraint setting) {
  const bool is_strict = std::ranges::any_of(conversation.tools, [](const recipe::Tool& tool) { return tool.strict.value_or(false); });
  if (conversation.tools.empty() || (setting == ToolConstraint::off && !is_strict)) {
    return grammar::ToolUse::none;
  }
  return conversation.tool_choice == recipe::ToolChoice::required ? grammar::ToolUse::required : grammar::ToolUse::automatic;
}

grammar::ToolDefinition definition_of(const recipe::Tool& tool, const RequestedConstraint& requested, ToolConstraint setting) {
  const auto declared = requested.strict_parameters.find(tool.name);
  const bool is_strict = declared != requested.strict_parameters.end() || tool.strict.value_or(false);
  return {.name = tool.name,
          .parameters = declared != requested.strict_parameters.end() ? declared->second : json::to_text(tool.parameters),
          .is_strict = is_strict || setting == ToolConstraint::schema};
}

bool starts_with_reasoning(recipe::ThinkingStage stage) {
  return stage == recipe::ThinkingStage::reasoning_start || stage == recipe::ThinkingStage::reasoning_continuation;
}

}  // namespace

Result<ConstraintSettings> constraint_settings(const tokenizer::Tokenizer& tokenizer, ToolConstraint tools) {
  const recipe::SpecialTokens spellings;
  const std::optional<TokenId> thinking_end = tokenizer.find(spellings.thinking_end);
  const std::optional<TokenId> dsml = tokenizer.find(spellings.dsml);
  if (!thinking_end || !dsml) {
    return fail(ErrorKind::unsupported,
                "structured output needs the tokens " + spellings.thinking_end + " and " + spellings.dsml + ", which this tokenizer lacks");
  }
  return ConstraintSettings{.tools = tools, .thinking_end = *thinking_end, .dsml = *dsml};
}

Result<RequestedConstraint> take_constraint(recipe::Api api, json::Value& body, BodyForms forms) {
  RequestedConstraint out;
  if (body.as_object() == nullptr) {
    return out;
  }
  const bool is_extended = forms == BodyForms::extended;
  if (api == recipe::Api::chat) {
    take_chat_format(out, body, forms);
  } else if (api == recipe::Api::responses) {
    take_responses_format(out, body);
  } else if (is_extended) {
    take_messages_format(out, body);
  }
  take_tools(out, body);
  const json::Value* const parallel = body.find("parallel_tool_calls");
  const bool forbids = parallel != nullptr && parallel->as_bool() != nullptr && !*parallel->as_bool();
  out.has_parallel_calls = !forbids && !flag_of(member(body.find("tool_choice"), "disable_parallel_tool_use"));
  if (auto so_args = is_extended ? take_so_args(out, body) : Result<void>{}; !so_args) {
    return std::unexpected(std::move(so_args.error()));
  }
  return out;
}

std::optional<grammar::CompositeJob> constraint_job(const RequestedConstraint& requested, const recipe::ConvertedRequest& request,
                                                    const ConstraintSettings& settings) {
  grammar::CompositeJob job{.body = requested.body, .dsml_token = settings.dsml};
  if (requested.covers_all) {
    return job;
  }
  const recipe::Conversation& conversation = request.conversation;
  job.tool_use = tool_use(conversation, settings.tools);
  const bool masks_calls = conversation.tool_choice == recipe::ToolChoice::none;
  if (!job.body && job.tool_use == grammar::ToolUse::none && !masks_calls) {
    return std::nullopt;
  }
  if (job.tool_use != grammar::ToolUse::none) {
    for (const recipe::Tool& tool : conversation.tools) {
      job.tools.push_back(definition_of(tool, requested, settings.tools));
    }
  }
  job.has_parallel_calls = requested.has_parallel_calls;
  job.block_is_open = request.parsing.starts_in_tool_calls;
  if (starts_with_reasoning(request.parsing.thinking_initial_stage)) {
    job.reasoning_end_ids = {settings.thinking_end};
  }
  return job;
}

ConstraintRefusal constraint_refusal(recipe::Api api, const RequestedConstraint& requested, const grammar::CompileError& error) {
  const std::string param = !error.tool.empty() || !requested.body ? "tools" : requested.param;
  ConstraintRefusal out{.body = {}, .message = param + ": " + error.message};
  constexpr std::string_view kType = "invalid_request_error";
  if (api == recipe::Api::messages) {
    out.body = json::to_text(json::Object{{"type", "error"}, {"error", json::Object{{"type", kType}, {"message", out.message}}}});
  } else {
    out.body = json::to_text(json::Object{
        {"error", json::Object{{"message", out.message}, {"type", kType}, {"param", param}, {"code", grammar::code_name(error.code)}}}});
  }
  return out;
}

}  // namespace deepinfer::server
