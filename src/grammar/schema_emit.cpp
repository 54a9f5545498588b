#include "grammar/schema_emit.h"

#include <algorithm>

#include "base/json.h"
#include "grammar/numbers.h"

namespace deepinfer::grammar {

namespace {

/// With an indent every depth has its own blanks, so rules are made per depth; deeper values are not written.
constexpr std::int32_t kMaxIndentDepth = 24;

bool is_plain_ascii(std::u32string_view text) {
  return std::ranges::all_of(text, [](char32_t c) { return c >= 0x20 && c < 0x7F; });
}

}  // namespace

SchemaEmitter::SchemaEmitter(const SchemaTarget& target, SchemaExpander& expander)
    : pool_(target.pool),
      builder_(target.builder),
      expander_(expander),
      options_(target.options),
      budget_(target.budget),
      dsml_token_(target.dsml_token),
      blank_(pool_.repeat(ExprPool::kBlank, 0, options_.max_blanks)) {}

RuleId SchemaEmitter::rule_of(Value value) {
  const bool is_indented = options_.layout && options_.layout->indent;
  value.depth = is_indented ? value.depth : 0;
  if (const auto known = rules_.find(value); known != rules_.end()) {
    return known->second;
  }
  const RuleId rule = builder_.add_rule();
  rules_.emplace(value, rule);
  if (value.depth < kMaxIndentDepth) {
    tasks_.push_back({.formula = value.formula, .depth = value.depth, .form = value.form, .rule = rule});
  }
  return rule;
}

RuleId SchemaEmitter::member_rule(FormulaId value, const Task& task) {
  const bool is_parameter = task.form == ValueForm::dsml_arguments;
  return rule_of({value, is_parameter ? 0 : task.depth + 1, is_parameter ? ValueForm::dsml_value : ValueForm::json});
}

std::optional<CompileError> SchemaEmitter::emit_all() {
  while (!tasks_.empty() && !error_) {
    const Task task = tasks_.back();
    tasks_.pop_back();
    emit_value(task);
    error_ = error_ ? error_ : expander_.error();
    error_ =
        error_ ? error_ : budget_.spent(pool_.bytes() + builder_.num_edges() * sizeof(Edge) + builder_.num_nodes() * sizeof(Network::Node));
    if (pool_.exhausted() && !error_) {
      error_ =
          CompileError{.code = ErrorCode::limit, .message = "the schema needs more automaton states than the limit", .limit = "states"};
    }
  }
  return error_;
}

void SchemaEmitter::refuse_with(CompileError error) {
  if (!error_) {
    error_ = expander_.located(std::move(error), current_);
  }
}

void SchemaEmitter::emit_value(const Task& task) {
  current_ = task.formula;
  const Shape shape = expander_.shape(task.formula);
  const NodeId from = builder_.start_of(task.rule);
  const NodeId to = builder_.add_node(task.rule);
  builder_.set_final(to);
  switch (task.form) {
    case ValueForm::json:
      return emit_json(shape, task, from, to);
    case ValueForm::dsml_value:
      return emit_dsml_value(shape, task, from, to);
    case ValueForm::dsml_arguments:
      for (const ObjectClause& clause : shape.objects) {
        ObjectEmitter(*this, task, clause).emit(from, to);
      }
  }
}

void SchemaEmitter::emit_json(const Shape& shape, const Task& task, NodeId from, NodeId to) {
  builder_.lexeme(from, to, {.expr = scalars(shape, from, to)});
  for (const ArrayClause& clause : shape.arrays) {
    ArrayEmitter(*this, task, clause).emit(from, to);
  }
  for (const ObjectClause& clause : shape.objects) {
    ObjectEmitter(*this, task, clause).emit(from, to);
  }
}

/// Strings stand as they are, everything else as JSON.
void SchemaEmitter::emit_dsml_value(Shape shape, const Task& task, NodeId from, NodeId to) {
  const NodeId written = builder_.add_node(task.rule);
  if (shape.string != ExprPool::kEmpty) {
    builder_.lexeme(text(from, "true\">", task.rule), written, {.expr = shape.string});
  }
  shape.string = ExprPool::kEmpty;
  Task json = task;
  json.form = ValueForm::json;
  emit_json(shape, json, text(from, "false\">", task.rule), written);
  builder_.lexeme(marker(written, "</", task.rule), to, {.expr = pool_.literal(U" parameter>")});
}

/// `before` and the control token of tool calls.
NodeId SchemaEmitter::marker(NodeId from, std::string_view before, RuleId rule) {
  const NodeId to = builder_.add_node(rule);
  builder_.token(text(from, before, rule), to, dsml_token_);
  return to;
}

/// null, booleans, numbers and finite plain strings as one lexeme; other strings get one of their own.
ExprId SchemaEmitter::scalars(const Shape& shape, NodeId from, NodeId to) {
  std::vector<std::u32string> words;
  if (shape.null) {
    words.emplace_back(U"null");
  }
  if (shape.yes) {
    words.emplace_back(U"true");
  }
  if (shape.no) {
    words.emplace_back(U"false");
  }
  bool is_listed = pool_.is_words(shape.string);
  if (is_listed) {
    const std::vector<std::u32string> strings = pool_.words_of(shape.string);
    is_listed = std::ranges::all_of(strings, is_plain_ascii);
    for (const std::u32string& text : is_listed ? strings : std::vector<std::u32string>{}) {
      std::string spelling;
      json::append_string(spelling, std::string(text.begin(), text.end()));
      words.emplace_back(spelling.begin(), spelling.end());
    }
  }
  if (!is_listed && shape.string != ExprPool::kEmpty) {
    builder_.lexeme(from, to, {.expr = shape.string, .encoding = Encoding::json_string});
  }
  ExprId numbers = shape.number.has_exponents ? any_number_with_exponent(pool_) : shape.number.plain;
  if (shape.number.is_whole) {
    numbers = pool_.both(numbers, integer_spellings(pool_));
  }
  return pool_.either(words.empty() ? ExprPool::kEmpty : pool_.words(words), numbers);
}

NodeId SchemaEmitter::text(NodeId from, std::string_view ascii, RuleId rule) {
  const NodeId to = builder_.add_node(rule);
  builder_.lexeme(from, to, {.expr = pool_.literal(to_code_points(ascii))});
  return to;
}

NodeId SchemaEmitter::blanks(NodeId from, RuleId rule) {
  if (options_.max_blanks == 0) {
    return from;
  }
  const NodeId to = builder_.add_node(rule);
  builder_.lexeme(from, to, {.expr = blank_});
  return to;
}

void SchemaEmitter::line_break(std::string& out, std::int32_t depth) const {
  if (options_.layout->indent) {
    out += '\n' + std::string(static_cast<std::size_t>(*options_.layout->indent * depth), ' ');
  }
}

NodeId SchemaEmitter::open(NodeId from, char bracket, const Task& task) {
  if (task.form == ValueForm::dsml_arguments) {
    return from;
  }
  const NodeId opened = text(from, std::string(1, bracket), task.rule);
  return options_.layout ? opened : blanks(opened, task.rule);
}

NodeId SchemaEmitter::first(NodeId from, const Task& task) {
  if (task.form == ValueForm::dsml_arguments) {
    return text(marker(from, "<", task.rule), " parameter name=\"", task.rule);
  }
  std::string spelling;
  if (options_.layout) {
    line_break(spelling, task.depth + 1);
  }
  return spelling.empty() ? from : text(from, spelling, task.rule);
}

void SchemaEmitter::close_empty(NodeId from, NodeId end, char bracket, const Task& task) {
  if (task.form == ValueForm::dsml_arguments) {
    return close(from, end, bracket, task);
  }
  builder_.lexeme(from, end, {.expr = pool_.literal(std::u32string(1, static_cast<char32_t>(bracket)))});
}

void SchemaEmitter::close(NodeId from, NodeId end, char bracket, const Task& task) {
  if (task.form == ValueForm::dsml_arguments) {
    builder_.lexeme(marker(from, "\n</", task.rule), end, {.expr = pool_.literal(U" invoke>")});
    return;
  }
  std::string spelling;
  if (options_.layout) {
    line_break(spelling, task.depth);
  } else {
    from = blanks(from, task.rule);
  }
  spelling += bracket;
  builder_.lexeme(from, end, {.expr = pool_.literal(to_code_points(spelling))});
}

NodeId SchemaEmitter::comma(NodeId from, const Task& task) {
  if (task.form == ValueForm::dsml_arguments) {
    return first(text(from, "\n", task.rule), task);
  }
  if (options_.layout) {
    std::string spelling = options_.layout->item_separator;
    line_break(spelling, task.depth + 1);
    return text(from, spelling, task.rule);
  }
  return blanks(text(blanks(from, task.rule), ",", task.rule), task.rule);
}

std::string SchemaEmitter::key_spelling(const std::string& name, const Task& task) const {
  if (task.form == ValueForm::dsml_arguments) {
    return name + "\" string=\"";
  }
  std::string out;
  json::append_string(out, name);
  return out;
}

Lexeme SchemaEmitter::key_lexeme(ExprId keys, const Task& task) {
  if (task.form != ValueForm::dsml_arguments) {
    return {.expr = keys, .encoding = Encoding::json_string};
  }
  // A quote or an angle bracket in a key could not be told from the markup around it.
  const CodeSet markup = normalise({{U'\n', U'\n'}, {U'"', U'"'}, {U'<', U'<'}, {U'>', U'>'}});
  const ExprId plain = pool_.repeat(pool_.one_of(complement(markup)), 1, kUnbounded);
  return {.expr = pool_.concat(pool_.both(keys, plain), pool_.literal(U"\" string=\""))};
}

NodeId SchemaEmitter::colon(NodeId from, const Task& task) {
  if (task.form == ValueForm::dsml_arguments) {
    return from;
  }
  if (options_.layout) {
    return text(from, options_.layout->key_separator, task.rule);
  }
  return blanks(text(blanks(from, task.rule), ":", task.rule), task.rule);
}

}  // namespace deepinfer::grammar
