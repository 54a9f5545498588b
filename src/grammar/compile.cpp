#include "grammar/compile.h"

#include "base/utf8.h"
#include "grammar/budget.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/schema_compile.h"

namespace deepinfer::grammar {

namespace {

/// Expression nodes a compile may make; about 100 bytes each, so well inside `compiled_bytes`.
constexpr std::uint32_t kMaxExprNodes = 600'000;

CompileError expr_limit() {
  return {.code = ErrorCode::limit, .message = "the constraint needs more automaton states than the limit", .limit = "states"};
}

Compiled<Network> compile_regex(ExprPool& pool, std::string_view text) {
  const Compiled<ExprId> expr = parse_regex(pool, text, RegexUse::whole_text);
  if (!expr) {
    return refuse(expr.error());
  }
  NetworkBuilder builder(pool);
  const RuleId root = builder.add_rule();
  const NodeId end = builder.add_node(root);
  builder.set_final(end);
  builder.lexeme(builder.start_of(root), end, {.expr = *expr});
  if (pool.exhausted()) {
    return refuse(expr_limit());
  }
  Network out = builder.finish(root);
  if (out.nodes.empty()) {
    return refuse({.code = ErrorCode::unsatisfiable, .message = "regex: no text matches the pattern"});
  }
  return out;
}

/// `warnings` is filled by kinds that have any.
Compiled<Network> compile_kind(ExprPool& pool, const CompileJob& job, const Budget& budget, std::vector<std::string>& warnings) {
  switch (job.kind) {
    case GrammarKind::regex:
      return compile_regex(pool, job.text);
    case GrammarKind::ebnf:
      return compile_ebnf(pool, job.text, budget);
    case GrammarKind::json_schema:
    case GrammarKind::json_object: {
      const std::string_view text = job.kind == GrammarKind::json_object ? R"({"type":"object"})" : job.text;
      Compiled<CompiledSchema> schema = compile_schema(pool, text, job.options, budget);
      if (!schema) {
        return refuse(std::move(schema.error()));
      }
      warnings = std::move(schema->warnings);
      return std::move(schema->network);
    }
  }
  return refuse({.code = ErrorCode::bad_kind, .message = "unknown kind of grammar"});
}

}  // namespace

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
  ExprPool pool(kMaxExprNodes);
  std::vector<std::string> warnings;
  Compiled<Network> network = compile_kind(pool, job, budget, warnings);
  if (!network) {
    return refuse(std::move(network.error()));
  }
  if (const auto error = budget.spent(pool.bytes() + network->bytes())) {
    return refuse(*error);
  }
  return std::make_shared<const CompiledGrammar>(std::move(pool), std::move(*network), job.limits.run, std::move(warnings));
}

}  // namespace deepinfer::grammar
