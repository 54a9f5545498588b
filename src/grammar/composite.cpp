#include "grammar/composite.h"

#include <algorithm>

#include "grammar/budget.h"
#include "grammar/grammar.h"
#include "grammar/rule_compile.h"
#include "grammar/schema_compile.h"

namespace deepinfer::grammar {

namespace {

CompileError of_tool(CompileError error, const std::string& tool) {
  if (!tool.empty()) {
    error.message = "tool \"" + tool + "\": " + error.message;
    error.tool = tool;
  }
  return error;
}

class Composer {
 public:
  Composer(ExprPool& pool, const CompositeJob& job, const Budget& budget) : pool_(pool), job_(job), budget_(budget), builder_(pool) {}

  Compiled<Network> compose() {
    root_ = builder_.add_rule();
    const NodeId end = builder_.add_node(root_);
    builder_.set_final(end);
    const NodeId answer = job_.reasoning_end_ids.empty() ? builder_.start_of(root_) : reasoning(builder_.start_of(root_));
    if (const auto error = body(answer, end)) {
      return refuse(*error);
    }
    if (job_.tool_use != ToolUse::none) {
      if (const auto error = calls(answer, end)) {
        return refuse(*error);
      }
    }
    const std::vector<bool> productive = builder_.productive_rules();
    for (const auto& [rule, name] : named_) {
      if (!productive[rule]) {
        return refuse(of_tool({.code = ErrorCode::unsatisfiable, .message = "no finite text fits"}, name));
      }
    }
    return builder_.finish(root_);
  }

  [[nodiscard]] std::vector<std::string>& warnings() { return warnings_; }

 private:
  using Failure = std::optional<CompileError>;

  NodeId text(NodeId from, std::u32string_view spelling, RuleId rule) {
    const NodeId to = builder_.add_node(rule);
    builder_.lexeme(from, to, {.expr = pool_.literal(spelling)});
    return to;
  }
  NodeId marker(NodeId from, std::u32string_view before, RuleId rule) {
    const NodeId to = builder_.add_node(rule);
    builder_.token(text(from, before, rule), to, job_.dsml_token.value);
    return to;
  }

  /// Free text up to an id that ends it.
  NodeId reasoning(NodeId from) {
    const NodeId thought = builder_.add_node(root_);
    const NodeId answer = builder_.add_node(root_);
    builder_.lexeme(from, thought, {.encoding = Encoding::raw_bytes});
    for (const TokenId id : job_.reasoning_end_ids) {
      builder_.token(thought, answer, id.value);
    }
    if (job_.bound_id) {
      const NodeId bound = builder_.add_node(root_);
      builder_.token(thought, bound, job_.bound_id->value);
      builder_.token(bound, answer, job_.reasoning_end_ids.front().value);
    }
    return answer;
  }

  Failure body(NodeId from, NodeId end) {
    if (job_.body) {
      const RuleTarget target{.pool = pool_, .builder = builder_, .options = job_.body->options, .budget = budget_};
      const Compiled<RuleId> rule = emit_grammar(target, job_.body->kind, job_.body->text, warnings_);
      if (!rule) {
        return rule.error();
      }
      named_.emplace_back(*rule, "");
      builder_.call(from, end, *rule);
    } else if (job_.tool_use != ToolUse::required) {
      builder_.lexeme(from, end, {.encoding = Encoding::raw_bytes});
    }
    return std::nullopt;
  }

  /// A block of calls, from where the text before it ends.
  Failure calls(NodeId from, NodeId end) {
    NodeId inside = from;
    if (!job_.block_is_open) {
      const NodeId before = builder_.add_node(root_);
      if (job_.tool_use == ToolUse::automatic && !job_.body) {
        builder_.lexeme(from, before, {.encoding = Encoding::raw_bytes});
      } else {
        builder_.lexeme(from, before, {.expr = pool_.repeat(pool_.literal(U"\n"), 0, 2)});
      }
      inside = text(marker(before, U"<", root_), U" calls>\n", root_);
    }
    const NodeId behind = builder_.add_node(root_);
    for (const ToolDefinition& tool : job_.tools) {
      const Compiled<RuleId> rule = invoke(tool);
      if (!rule) {
        return of_tool(rule.error(), tool.name);
      }
      named_.emplace_back(*rule, tool.name);
      builder_.call(inside, behind, *rule);
    }
    if (job_.has_parallel_calls) {
      builder_.lexeme(behind, inside, {.expr = pool_.literal(U"\n")});
    }
    builder_.lexeme(marker(behind, U"\n</", root_), end, {.expr = pool_.literal(U" calls>")});
    return std::nullopt;
  }

  Compiled<RuleId> invoke(const ToolDefinition& tool) {
    const RuleId rule = builder_.add_rule();
    const NodeId end = builder_.add_node(rule);
    builder_.set_final(end);
    const std::u32string head = U" invoke name=\"" + to_code_points(tool.name) + U"\">\n";
    const NodeId arguments = text(marker(builder_.start_of(rule), U"<", rule), head, rule);
    const CompileOptions options{.additional = tool.is_strict ? Additional::closed : Additional::open};
    const SchemaTarget target{
        .pool = pool_, .builder = builder_, .options = options, .budget = budget_, .dsml_token = job_.dsml_token.value};
    const std::string_view none = R"({"type":"object","properties":{},"additionalProperties":false})";
    const std::string_view schema = !tool.is_strict           ? std::string_view(R"({"type":"object"})")
                                    : tool.parameters.empty() ? none
                                                              : tool.parameters;
    const Compiled<EmittedSchema> emitted = emit_schema(target, schema, SchemaSyntax::dsml_arguments);
    if (!emitted) {
      return refuse(emitted.error());
    }
    warnings_.insert(warnings_.end(), emitted->warnings.begin(), emitted->warnings.end());
    builder_.call(arguments, end, emitted->rule);
    return rule;
  }

  ExprPool& pool_;
  const CompositeJob& job_;
  const Budget& budget_;
  NetworkBuilder builder_;
  RuleId root_ = 0;
  std::vector<std::pair<RuleId, std::string>> named_;  // rules that must fit something, with the tool they are of
  std::vector<std::string> warnings_;
};

}  // namespace

Compiled<std::shared_ptr<const CompiledGrammar>> compile_composite(const CompositeJob& job) {
  std::size_t bytes = job.body ? job.body->text.size() : 0;
  for (const ToolDefinition& tool : job.tools) {
    bytes += tool.name.size() + tool.parameters.size();
  }
  if (bytes > job.limits.tools_bytes) {
    return refuse({.code = ErrorCode::limit,
                   .message = "tools and response format are longer than " + std::to_string(job.limits.tools_bytes) + " bytes",
                   .limit = "tools_bytes"});
  }
  if (job.tool_use == ToolUse::required && job.tools.empty()) {
    return refuse({.code = ErrorCode::unsatisfiable, .message = "a tool call is required but there are no tools"});
  }
  if (job.tool_use == ToolUse::required && job.body) {
    return refuse({.code = ErrorCode::invalid_schema, .message = "response_format and a required tool call exclude each other"});
  }
  const Budget budget{.deadline = std::chrono::steady_clock::now() + job.limits.compile_time,
                      .is_cancelled = job.is_cancelled,
                      .compiled_bytes = job.limits.compiled_bytes,
                      .depth = job.limits.depth};
  ExprPool pool(kMaxCompileNodes);
  pool.watch(&budget);
  Composer composer(pool, job, budget);
  Compiled<Network> network = composer.compose();
  if (!network) {
    return refuse(std::move(network.error()));
  }
  pool.watch(nullptr);
  if (pool.exhausted()) {
    if (const auto error = budget.spent(pool.bytes())) {
      return refuse(*error);  // a search stopped because of it
    }
    return refuse({.code = ErrorCode::limit, .message = "the constraint needs more automaton states than the limit", .limit = "states"});
  }
  return std::make_shared<const CompiledGrammar>(std::move(pool), std::move(*network), job.limits.run, std::move(composer.warnings()));
}

Compiled<std::vector<ToolDefinition>> tools_from_json(const json::Value& tools) {
  std::vector<ToolDefinition> out;
  const json::Array* list = tools.as_array();
  if (list == nullptr) {
    return refuse({.code = ErrorCode::invalid_schema, .message = "tools must be an array"});
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const json::Value* function = (*list)[i].find("function");
    const json::Value& tool = function != nullptr ? *function : (*list)[i];
    const json::Value* name = tool.find("name");
    if (name == nullptr || name->as_string() == nullptr || name->as_string()->empty() ||
        name->as_string()->find_first_of("\"<>\n") != std::string::npos) {
      const std::string pointer = "/" + std::to_string(i) + (function != nullptr ? "/function/name" : "/name");
      return refuse({.code = ErrorCode::invalid_schema,
                     .message = "a tool needs a name without quotes, angle brackets and line breaks at " + pointer,
                     .pointer = pointer});
    }
    const json::Value* parameters = tool.find("parameters");
    const json::Value* strict = tool.find("strict");
    out.push_back({.name = *name->as_string(),
                   .parameters = parameters == nullptr || parameters->is_null() ? "" : json::to_text(*parameters),
                   .is_strict = strict != nullptr && strict->as_bool() != nullptr && *strict->as_bool()});
  }
  return out;
}

}  // namespace deepinfer::grammar
