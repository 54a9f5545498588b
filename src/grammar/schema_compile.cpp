#include "grammar/schema_compile.h"

#include "grammar/schema_document.h"
#include "grammar/schema_emit.h"
#include "grammar/schema_expand.h"

namespace deepinfer::grammar {

Compiled<EmittedSchema> emit_schema(const SchemaTarget& target, std::string_view text, SchemaSyntax syntax) {
  const Result<json::Value> root = json::parse(text, {.max_depth = target.budget.depth});
  if (!root) {
    const bool is_limit = root.error().kind == ErrorKind::exhausted;
    return refuse(
        {.code = is_limit ? ErrorCode::limit : ErrorCode::invalid_json, .message = root.error().message, .limit = is_limit ? "depth" : ""});
  }
  return emit_schema(target, *root, syntax);
}

Compiled<EmittedSchema> emit_schema(const SchemaTarget& target, const json::Value& schema, SchemaSyntax syntax) {
  if (schema.as_object() == nullptr && schema.as_bool() == nullptr) {
    return refuse(
        {.code = ErrorCode::invalid_schema, .message = "a schema must be an object or a boolean, not " + std::string(schema.type_name())});
  }
  Compiled<SchemaDocument> document = SchemaDocument::read(schema);
  if (!document) {
    return refuse(document.error());
  }
  SchemaExpander expander(target.pool, *document, target.options, target.budget);
  SchemaEmitter emitter(target, expander);
  const FormulaId formula = expander.root();
  if (expander.error()) {
    return refuse(*expander.error());
  }
  const RuleId rule = emitter.rule_of({formula, 0, syntax == SchemaSyntax::json ? ValueForm::json : ValueForm::dsml_arguments});
  if (const auto error = emitter.emit_all()) {
    return refuse(*error);
  }
  return EmittedSchema{.rule = rule, .warnings = expander.warnings()};
}

}  // namespace deepinfer::grammar
