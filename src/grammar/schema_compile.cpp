#include "grammar/schema_compile.h"

#include "grammar/schema_document.h"
#include "grammar/schema_emit.h"
#include "grammar/schema_expand.h"

namespace deepinfer::grammar {

Compiled<CompiledSchema> compile_schema(ExprPool& pool, std::string_view text, const CompileOptions& options, const Budget& budget) {
  const Result<json::Value> root = json::parse(text, {.max_depth = budget.depth});
  if (!root) {
    const bool is_limit = root.error().kind == ErrorKind::exhausted;
    return refuse(
        {.code = is_limit ? ErrorCode::limit : ErrorCode::invalid_json, .message = root.error().message, .limit = is_limit ? "depth" : ""});
  }
  if (root->as_object() == nullptr && root->as_bool() == nullptr) {
    return refuse(
        {.code = ErrorCode::invalid_schema, .message = "a schema must be an object or a boolean, not " + std::string(root->type_name())});
  }
  Compiled<SchemaDocument> document = SchemaDocument::read(*root);
  if (!document) {
    return refuse(document.error());
  }
  SchemaExpander expander(pool, *document, options, budget);
  NetworkBuilder builder(pool);
  SchemaEmitter emitter(pool, builder, expander, options, budget);
  const FormulaId formula = expander.root();
  const RuleId rule = emitter.rule_of(formula);
  if (expander.error()) {
    return refuse(*expander.error());
  }
  if (const auto error = emitter.emit_all()) {
    return refuse(*error);
  }
  CompiledSchema out{.network = builder.finish(rule), .warnings = expander.warnings()};
  if (out.network.nodes.empty()) {
    return refuse({.code = ErrorCode::unsatisfiable, .message = "no value fits the schema"});
  }
  return out;
}

}  // namespace deepinfer::grammar
