// The meaning of JSON Schema keywords: from subschemas to shapes. What has no exact shape is an error that names keyword and
// place, never left out. Writing values down is the duty of schema_emit.h.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "grammar/compile.h"
#include "grammar/formulas.h"
#include "grammar/schema_document.h"
#include "grammar/shape_algebra.h"

namespace deepinfer::grammar {

class SchemaExpander {
 public:
  SchemaExpander(ExprPool& pool, SchemaDocument& document, const CompileOptions& options, const Budget& budget);
  SchemaExpander(const SchemaExpander&) = delete;
  SchemaExpander& operator=(const SchemaExpander&) = delete;

  [[nodiscard]] FormulaId root() { return formula_of(document_.root()); }
  /// The shape of a formula; empty once there is an error.
  [[nodiscard]] const Shape& shape(FormulaId formula);
  [[nodiscard]] const std::optional<CompileError>& error() const { return error_; }
  [[nodiscard]] std::vector<std::string> warnings() const { return {warnings_.begin(), warnings_.end()}; }
  /// The error with the place of the first schema in `formula`, when it has no place yet.
  [[nodiscard]] CompileError located(CompileError error, FormulaId formula) const;
  [[nodiscard]] Formulas& formulas() { return formulas_; }
  [[nodiscard]] ShapeAlgebra& algebra() { return algebra_; }

 private:
  /// One schema object being expanded.
  struct Node {
    SchemaIndex index = 0;
    const json::Object* object = nullptr;
    Draft draft = Draft::draft2020;
  };
  enum class Presence { absent, present };

  [[nodiscard]] FormulaId formula_of(SchemaIndex index);
  [[nodiscard]] FormulaId child(const Node& node, const json::Value& value, const std::string& path);
  [[nodiscard]] Shape compute(FormulaId formula);
  [[nodiscard]] Shape constant_shape(const json::Value& value);
  [[nodiscard]] Shape expand(const Node& node);
  [[nodiscard]] Shape types_of(const Node& node);
  void apply(const Node& node, const std::string& keyword, Shape& shape, std::set<std::string>& done);
  void apply_numbers(const Node& node, Shape& shape);
  [[nodiscard]] std::optional<ExprId> bound_of(const Node& node, const std::string& keyword);
  void apply_strings(const Node& node, Shape& shape);
  [[nodiscard]] ExprId format_of(const Node& node, const std::string& name);
  void apply_arrays(const Node& node, Shape& shape);
  void read_items(const Node& node, ArrayClause& clause);
  void read_contains(const Node& node, ArrayClause& clause);
  void apply_objects(const Node& node, Shape& shape);
  void read_properties(const Node& node, ObjectClause& clause);
  void read_key_rules(const Node& node, ObjectClause& clause);
  [[nodiscard]] Shape finite(const Node& node, const json::Array& values);
  [[nodiscard]] Shape reference(const Node& node, const std::string& keyword, const json::Value& value);
  [[nodiscard]] Shape any_of(const std::vector<FormulaId>& branches);
  [[nodiscard]] Shape one_of(const std::vector<FormulaId>& branches);
  [[nodiscard]] Shape conditional(const Node& node);
  void apply_dependencies(const Node& node, const std::string& keyword, const json::Object& entries, Shape& shape);
  [[nodiscard]] Shape with_property(const std::string& name, Presence presence);
  void apply_unevaluated(const Node& node, Shape& shape);
  [[nodiscard]] std::vector<FormulaId> branches(const Node& node, const std::string& keyword, const json::Value& value);

  void invalid(const Node& node, const std::string& keyword, const std::string& what);
  void unsupported(const Node& node, const std::string& keyword, const std::string& what = {});
  void fail_with(CompileError error);
  [[nodiscard]] std::optional<std::uint32_t> count_of(const Node& node, const std::string& keyword);

  ExprPool& pool_;
  SchemaDocument& document_;
  const CompileOptions& options_;
  const Budget& budget_;
  Formulas formulas_;
  ShapeAlgebra algebra_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  std::vector<std::uint32_t> open_at_;  // by formula: 1 + place on the stack while it is being expanded
  std::uint32_t stack_size_ = 0;
  std::uint32_t lowest_loop_ = 0xFFFFFFFF;  // lowest place on the stack that a loop led back to
  std::int32_t negations_ = 0;
  std::uint32_t alias_steps_ = 0;
  Shape nothing_;
  std::vector<std::unique_ptr<Shape>> loose_;  // shapes that hold only inside an open loop
  std::optional<CompileError> error_;
  std::set<std::string> warnings_;
};

/// RFC 6901 escaping of one pointer segment.
[[nodiscard]] std::string pointer_segment(std::string_view key);

}  // namespace deepinfer::grammar
