#include "grammar/compile.h"

#include "base/utf8.h"
#include "grammar/budget.h"
#include "grammar/ebnf.h"
#include "grammar/grammar.h"
#include "grammar/regex.h"
#include "grammar/rule_compile.h"
#include "grammar/schema_compile.h"

namespace deepinfer::grammar {

namespace {

Compiled<RuleId> emit_regex(const RuleTarget& target, std::string_view text) {
  const Compiled<ExprId> expr = parse_regex(target.pool, text, RegexUse::whole_text);
  if (!expr) {
    return refuse(expr.error());
  }
  const RuleId rule = target.builder.add_rule();
  const NodeId end = target.builder.add_node(rule);
  target.builder.set_final(end);
  target.builder.lexeme(target.builder.start_of(rule), end, {.expr = *expr});
  return rule;
}

}  // namespace

Compiled<RuleId> emit_grammar(const RuleTarget& target, GrammarKind kind, std::string_view text, std::vector<std::string>& warnings) {
  if (kind == GrammarKind::regex) {
    return emit_regex(target, text);
  }
  if (kind == GrammarKind::ebnf) {
    return emit_ebnf(target.pool, target.builder, text, target.budget);
  }
  const SchemaTarget schema{.pool = target.pool, .builder = target.builder, .options = target.options, .budget = target.budget};
  const Compiled<EmittedSchema> out =
      emit_schema(schema, kind == GrammarKind::json_object ? R"({"type":"object"})" : text, SchemaSyntax::json);
  if (!out) {
    return refuse(out.error());
  }
  warnings.insert(warnings.end(), out->warnings.begin(), out->warnings.end());
  return out->rule;
}

Compiled<std::shared_ptr<const CompiledGrammar>> compile(const CompileJob& job) {
  if (job.text.size() > job.limits.text_bytes) {
    return refuse({.code = ErrorCode::limit,
                   .message = "the text is longer than " + std::to_string(job.limits.text_bytes) + " bytes",
                   .limit = "text_bytes"});
  }
  if (!utf8::is_valid(job.text)) {
    return refuse({.code = ErrorCode::syntax, .message = "the text is not valid UTF-8"});
  }
  const Budget budget{.deadline = std::chrono::steady_clock::now() + job.limits.compile_time,
                      .is_cancelled = job.is_cancelled,
                      .compiled_bytes = job.limits.compiled_bytes,
                      .depth = job.limits.depth};
  ExprPool pool(kMaxCompileNodes);
  pool.watch(&budget);
  NetworkBuilder builder(pool);
  std::vector<std::string> warnings;
  const Compiled<RuleId> rule =
      emit_grammar({.pool = pool, .builder = builder, .options = job.options, .budget = budget}, job.kind, job.text, warnings);
  if (!rule) {
    return refuse(rule.error());
  }
  Network network = builder.finish(*rule);
  pool.watch(nullptr);
  if (pool.exhausted()) {
    if (const auto error = budget.spent(pool.bytes())) {
      return refuse(*error);  // a search stopped because of it
    }
    return refuse({.code = ErrorCode::limit, .message = "the constraint needs more automaton states than the limit", .limit = "states"});
  }
  if (network.nodes.empty()) {
    return refuse({.code = ErrorCode::unsatisfiable, .message = "no finite text fits the constraint"});
  }
  if (const auto error = budget.spent(pool.bytes() + network.bytes())) {
    return refuse(*error);
  }
  return std::make_shared<const CompiledGrammar>(std::move(pool), std::move(network), job.limits.run, std::move(warnings));
}

}  // namespace deepinfer::grammar
