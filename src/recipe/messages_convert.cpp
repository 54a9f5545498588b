// Messages: from the typed body to the conversation, with every rule of spec/recipe.md 4.1 and 4.3 in the official order.
#include <algorithm>
#include <utility>

#include "recipe/api_convert.h"
#include "recipe/messages_body.h"
#include "recipe/messages_input.h"
#include "recipe/request_settings.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

namespace {

/// The tools of a request after server tools were dropped or refused.
struct DeclaredTools {
  std::vector<ToolDeclaration> functions;
  std::vector<std::string> dropped;  ///< names of dropped server tools
};

std::expected<DeclaredTools, RequestError> sort_tools(std::vector<MessagesTool> tools, ModelVersion version, WebSearch web_search) {
  DeclaredTools out;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = "tools[" + std::to_string(i) + "]";
    if (auto* server = std::get_if<MessagesServerTool>(&tools[i])) {
      if (web_search == WebSearch::reject || !server->type.starts_with("web_search")) {
        return reject(place + ": server tools are not supported");
      }
      out.dropped.push_back(std::move(server->name).value_or(""));
      continue;
    }
    auto& declaration = std::get<ToolDeclaration>(tools[i]);
    if (Verdict verdict = check_tool_name(declaration.name, place + ".name"); !verdict) {
      return std::unexpected(std::move(verdict.error()));
    }
    out.functions.push_back(std::move(declaration));
  }
  if (version == ModelVersion::v4) {  // shows all tools up front
    std::ranges::for_each(out.functions, [](ToolDeclaration& tool) { tool.defer_loading = false; });
  }
  const auto is_deferred = [](const ToolDeclaration& tool) { return tool.defer_loading; };
  if (!out.functions.empty() && std::ranges::all_of(out.functions, is_deferred)) {
    return reject("tools: at least one tool must have defer_loading=false. All tools cannot be deferred.");
  }
  return out;
}

Verdict apply_tools(DeclaredTools tools, RequestedToolChoice choice, Conversation& conversation) {
  using Kind = RequestedToolChoice::Kind;
  if (choice.kind == Kind::named && std::ranges::find(tools.dropped, choice.name) != tools.dropped.end()) {
    choice.kind = Kind::automatic;
  }
  if (choice.kind == Kind::named && tools.functions.empty() && !tools.dropped.empty()) {
    return reject_unknown_function(choice.name);
  }
  std::vector<Tool> built;
  if (choice.kind != Kind::none) {
    if (Verdict verdict = assign(built, build_tools(std::move(tools.functions), Conformance::official)); !verdict) {
      return verdict;
    }
  }
  if (Verdict verdict = apply_tool_choice(conversation, std::move(built), choice); !verdict) {
    return verdict;
  }
  settle_system_tools(conversation);
  return {};
}

/// A larger value than the bound is lowered to it.
Verdict apply_max_tokens(const MessagesBody& body, ConvertedRequest& request, const ConvertOptions& options) {
  if (!body.max_tokens) {
    return {};
  }
  const std::uint32_t bound = max_tokens_bound(request.conversation.thinking_mode, options);
  request.inference.max_tokens = std::min(*body.max_tokens, bound);
  return check_max_tokens(*request.inference.max_tokens, bound);
}

}  // namespace

std::expected<ConvertedRequest, RequestError> convert_messages(MessagesBody body, const ConvertOptions& options) {
  ConvertedRequest request;
  Conversation& conversation = request.conversation;
  DeclaredTools tools;
  Verdict verdict = assign(request.version, find_model(body.model, options));
  if (verdict && body.tools) verdict = assign(tools, sort_tools(std::move(*body.tools), request.version, options.messages_web_search));
  const Thinking thinking = resolve_thinking(body.thinking, body.effort, options.default_thinking_mode);
  conversation.thinking_mode = thinking.mode;
  conversation.reasoning_effort = thinking.effort;
  if (verdict) verdict = assign(conversation.messages, convert_messages_input(body, tools.functions, request.version, options));
  const bool has_tools = !tools.functions.empty();
  if (verdict) {
    verdict =
        settle_reasoning(conversation, {.behaviour = options.missing_reasoning, .has_tools = has_tools, .field = "content[].thinking", .conformance = options.conformance});
  }
  if (verdict) verdict = apply_tools(std::move(tools), body.tool_choice.value_or(RequestedToolChoice{}), conversation);
  StopSetting stop{.sequences = std::move(body.stop_sequences).value_or(std::vector<std::string>{}), .is_list = true};
  if (verdict) verdict = check_stop(stop);
  if (verdict) verdict = assign(request.inference.temperature, resolve_temperature(body.temperature, thinking.mode));
  if (verdict) verdict = assign(request.inference.top_p, resolve_top_p(body.top_p, conversation, request.version));
  if (verdict) verdict = apply_max_tokens(body, request, options);
  if (!verdict) {
    return std::unexpected(std::move(verdict.error()));
  }
  request.model = std::move(body.model);
  request.stream = body.stream.value_or(false);
  derive_reply_options(request, std::nullopt);
  request.parsing.stop_sequences = std::move(stop.sequences);
  return request;
}

}  // namespace deepinfer::recipe
