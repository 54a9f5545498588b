// JSON Schema text into rules of a network: reading, expanding and emitting in one call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/budget.h"
#include "grammar/compile.h"
#include "grammar/network.h"

namespace deepinfer::grammar {

struct EmittedSchema {
  RuleId rule = 0;
  std::vector<std::string> warnings;
};

/// How the values are written.
enum class SchemaSyntax {
  json,
  dsml_arguments,  ///< the members of an object as the parameters of a tool call, up to the end of its invoke
};

struct SchemaTarget {
  ExprPool& pool;
  NetworkBuilder& builder;
  const CompileOptions& options;
  const Budget& budget;
  std::int32_t dsml_token = 0;  ///< for SchemaSyntax::dsml_arguments
};

[[nodiscard]] Compiled<EmittedSchema> emit_schema(const SchemaTarget& target, std::string_view text, SchemaSyntax syntax);
[[nodiscard]] Compiled<EmittedSchema> emit_schema(const SchemaTarget& target, const json::Value& schema, SchemaSyntax syntax);

}  // namespace deepinfer::grammar
