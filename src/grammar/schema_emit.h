// From shapes to the network that reads and writes the values: brackets, blanks, order of properties, counts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/compile.h"
#include "grammar/network.h"
#include "grammar/schema_compile.h"
#include "grammar/schema_expand.h"

namespace deepinfer::grammar {

/// How a value stands in the text.
enum class ValueForm : std::uint8_t {
  json,
  dsml_arguments,  ///< an object as the parameters of a tool call
  dsml_value,      ///< one parameter's value, from behind `string="`
};

class SchemaEmitter {
 public:
  struct Value {
    FormulaId formula = 0;
    std::int32_t depth = 0;  ///< of brackets, for indents
    ValueForm form = ValueForm::json;
    friend auto operator<=>(const Value&, const Value&) = default;
  };

  SchemaEmitter(const SchemaTarget& target, SchemaExpander& expander);

  /// The rule for a value, emitted with everything below it before emit_all() returns.
  [[nodiscard]] RuleId rule_of(Value value);
  /// Works through all rules asked for.
  [[nodiscard]] std::optional<CompileError> emit_all();

 private:
  friend class ObjectEmitter;
  friend class ArrayEmitter;
  struct Task {
    FormulaId formula = 0;
    std::int32_t depth = 0;
    ValueForm form = ValueForm::json;
    RuleId rule = 0;
  };

  void emit_value(const Task& task);
  void emit_json(const Shape& shape, const Task& task, NodeId from, NodeId to);
  void emit_dsml_value(Shape shape, const Task& task, NodeId from, NodeId to);
  [[nodiscard]] NodeId marker(NodeId from, std::string_view before, RuleId rule);
  [[nodiscard]] ExprId scalars(const Shape& shape, NodeId from, NodeId to);
  /// Literal text and blanks as the layout wants them; each returns the node behind.
  [[nodiscard]] NodeId text(NodeId from, std::string_view ascii, RuleId rule);
  [[nodiscard]] NodeId blanks(NodeId from, RuleId rule);
  [[nodiscard]] NodeId open(NodeId from, char bracket, const Task& task);
  void close(NodeId from, NodeId end, char bracket, const Task& task);
  void close_empty(NodeId from, NodeId end, char bracket, const Task& task);
  /// From behind the opening bracket to where the first member or item begins.
  [[nodiscard]] NodeId first(NodeId from, const Task& task);
  [[nodiscard]] NodeId comma(NodeId from, const Task& task);
  [[nodiscard]] std::string key_spelling(const std::string& name, const Task& task) const;
  [[nodiscard]] Lexeme key_lexeme(ExprId keys, const Task& task);
  [[nodiscard]] RuleId member_rule(FormulaId value, const Task& task);
  [[nodiscard]] NodeId colon(NodeId from, const Task& task);
  void line_break(std::string& out, std::int32_t depth) const;
  void refuse_with(CompileError error);

  ExprPool& pool_;
  NetworkBuilder& builder_;
  SchemaExpander& expander_;
  const CompileOptions& options_;
  const Budget& budget_;
  std::int32_t dsml_token_;
  std::map<Value, RuleId> rules_;
  std::vector<Task> tasks_;
  ExprId blank_;
  FormulaId current_ = kAnyValue;  // whose value is being emitted
  std::optional<CompileError> error_;
};

/// One object clause of a rule.
class ObjectEmitter {
 public:
  ObjectEmitter(SchemaEmitter& out, const SchemaEmitter::Task& task, ObjectClause clause);
  void emit(NodeId from, NodeId to);

 private:
  /// Keys that are no property, by what their values must be.
  struct KeyClass {
    ExprId keys = 0;
    FormulaId value = kAnyValue;
    std::uint32_t needs = 0;  ///< needs met by such a member
  };
  /// How far the object is: properties passed, members counted (as far as counts matter), needs met.
  struct Stage {
    std::uint32_t position = 0;
    std::uint32_t count = 0;
    std::uint32_t needs = 0;
    friend auto operator<=>(const Stage&, const Stage&) = default;
  };
  struct PropertyCase {
    FormulaId value = kAnyValue;
    std::uint32_t needs = 0;
  };

  bool prepare();
  void split_keys();
  void find_property_cases();
  void emit_stage(const Stage& stage, NodeId before_key);
  void emit_behind(const Stage& stage, NodeId behind);
  [[nodiscard]] NodeId behind(const Stage& stage);
  [[nodiscard]] NodeId first_key_node(std::uint32_t count, std::uint32_t needs);
  void emit_members(std::uint32_t count, std::uint32_t needs);
  void emit_others(const Stage& stage, NodeId before_key);
  [[nodiscard]] NodeId others_behind(std::uint32_t needs);
  [[nodiscard]] std::uint32_t counted(std::uint32_t count) const { return std::min(count + 1, count_cap_); }
  [[nodiscard]] bool is_complete(std::uint32_t count, std::uint32_t needs) const;
  [[nodiscard]] std::uint32_t last_name(std::uint32_t position) const;
  [[nodiscard]] bool is_closed(const Stage& stage) const;

  SchemaEmitter& out_;
  SchemaEmitter::Task task_;
  ObjectClause clause_;
  std::vector<KeyClass> others_;
  std::vector<std::vector<PropertyCase>> cases_;  // by property
  std::uint32_t trie_ = 0;
  std::uint32_t count_cap_ = 0;  // counts above are all the same
  std::uint32_t all_needs_ = 0;
  NodeId end_ = 0;
  std::map<Stage, NodeId> behind_;
  std::vector<Stage> open_stages_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, NodeId> key_nodes_;  // (count, needs) → node behind property 0's key
  std::map<std::uint32_t, NodeId> others_behind_;
};

/// One array clause of a rule.
class ArrayEmitter {
 public:
  ArrayEmitter(SchemaEmitter& out, const SchemaEmitter::Task& task, ArrayClause clause);
  void emit(NodeId from, NodeId to);

 private:
  using Counts = std::vector<std::uint32_t>;  // by ItemCount, saturated
  struct ItemCase {
    FormulaId value = kAnyValue;
    Counts counts;
  };

  [[nodiscard]] std::vector<ItemCase> cases(std::uint32_t index, const Counts& counts);
  [[nodiscard]] bool are_met(const Counts& counts) const;
  void emit_prefix(std::uint32_t index, const Counts& counts, NodeId before);
  void emit_rest(const Counts& counts, NodeId hub);
  [[nodiscard]] NodeId hub(const Counts& counts);
  [[nodiscard]] bool spell_out_counts();
  [[nodiscard]] bool emit_unique(NodeId from);
  [[nodiscard]] NodeId behind_prefix(std::uint32_t index, const Counts& counts);

  SchemaEmitter& out_;
  SchemaEmitter::Task task_;
  ArrayClause clause_;
  NodeId end_ = 0;
  std::map<Counts, NodeId> hubs_;
  std::vector<Counts> open_hubs_;
  std::map<std::pair<std::uint32_t, Counts>, NodeId> prefix_behind_;
  std::vector<std::pair<std::uint32_t, Counts>> open_prefix_;
};

}  // namespace deepinfer::grammar
