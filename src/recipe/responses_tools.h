// The tools of a Responses request: reading, reporting back, and turning functions, namespaces, apply_patch and client side
// tool search into plain function tools.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "recipe/responses_body.h"

namespace deepinfer::recipe {

[[nodiscard]] std::vector<ResponsesTool> read_responses_tools(Reader reader);
[[nodiscard]] std::span<const Choice<ToolSearchExecution>> tool_search_executions();

/// The tools as a response reports them: known members only, missing ones null, unknown tools left out.
[[nodiscard]] json::Array report_tools(std::span<const ResponsesTool> tools);

/// The text of a tool_search_output: as report_tools, but every tool of a namespace on its own with a `namespace` member.
/// Error: a tool of unknown type, which has no text.
[[nodiscard]] Result<std::string> tool_search_text(std::span<const ResponsesTool> tools);

/// Collects the functions of a request, first those of `tools`, then those that tool searches found.
class ResponsesFunctions {
 public:
  ResponsesFunctions(ModelVersion version, WebSearch web_search, ResponsesDetails& details)
      : version_(version), web_search_(web_search), details_(details) {}

  /// `place` begins the names in errors: "tools" or "input[3].tools".
  [[nodiscard]] Verdict add(std::vector<ResponsesTool> tools, const std::string& place);

  [[nodiscard]] const std::vector<ToolDeclaration>& declarations() const { return declarations_; }
  [[nodiscard]] std::vector<ToolDeclaration> take() && { return std::move(declarations_); }

  /// Functions added from here on were found by searches: deferred, because a later message shows them, and not in `details`.
  void found_by_search() { is_found_ = true; }

 private:
  [[nodiscard]] Verdict add_tool(ResponsesTool& tool, const std::string& place);
  [[nodiscard]] Verdict add_function(ToolDeclaration declaration, const std::string& place);
  [[nodiscard]] Verdict add_namespace(ResponsesNamespace& group, const std::string& place);
  [[nodiscard]] Verdict add_custom(const ResponsesCustomTool& tool);
  void add_tool_search(ResponsesToolSearch& tool);
  void declare(ToolDeclaration declaration);
  [[nodiscard]] std::string free_name(const std::string& wanted) const;

  ModelVersion version_;
  WebSearch web_search_;
  ResponsesDetails& details_;
  bool is_found_ = false;
  std::vector<ToolDeclaration> declarations_;
  std::unordered_set<std::string> namespaced_names_;
};

/// Name of a namespaced function in prompts.
[[nodiscard]] std::string qualified_name(std::string_view name_space, std::string_view name, ModelVersion version);

}  // namespace deepinfer::recipe
