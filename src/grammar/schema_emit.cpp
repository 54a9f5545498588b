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

SchemaEmitter::SchemaEmitter(ExprPool& pool, NetworkBuilder& builder, SchemaExpander& expander, const CompileOptions& options,
                             const Budget& budget)
    : pool_(pool),
      builder_(builder),
      expander_(expander),
      options_(options),
      budget_(budget),
      blank_(pool.repeat(ExprPool::kBlank, 0, options.max_blanks)) {}

RuleId SchemaEmitter::rule_of(FormulaId formula, std::int32_t depth) {
  const bool is_indented = options_.layout && options_.layout->indent;
  const std::pair key{formula, is_indented ? depth : 0};
  if (const auto known = rules_.find(key); known != rules_.end()) {
    return known->second;
  }
  const RuleId rule = builder_.add_rule();
  rules_.emplace(key, rule);
  if (depth < kMaxIndentDepth || !is_indented) {
    tasks_.push_back({.formula = formula, .depth = key.second, .rule = rule});
  }
  return rule;
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
    error_ = std::move(error);
  }
}

void SchemaEmitter::emit_value(const Task& task) {
  const Shape shape = expander_.shape(task.formula);
  const NodeId from = builder_.start_of(task.rule);
  const NodeId to = builder_.add_node(task.rule);
  builder_.set_final(to);
  builder_.lexeme(from, to, {.expr = scalars(shape, from, to)});
  for (const ArrayClause& clause : shape.arrays) {
    ArrayEmitter(*this, task, clause).emit(from, to);
  }
  for (const ObjectClause& clause : shape.objects) {
    ObjectEmitter(*this, task, clause).emit(from, to);
  }
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
  std::string spelling(1, bracket);
  if (options_.layout) {
    return text(from, spelling, task.rule);
  }
  return blanks(text(from, spelling, task.rule), task.rule);
}

void SchemaEmitter::close_empty(NodeId from, NodeId end, char bracket, const Task&) {
  builder_.lexeme(from, end, {.expr = pool_.literal(std::u32string(1, static_cast<char32_t>(bracket)))});
}

void SchemaEmitter::close(NodeId from, NodeId end, char bracket, const Task& task) {
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
  if (options_.layout) {
    std::string spelling = options_.layout->item_separator;
    line_break(spelling, task.depth + 1);
    return text(from, spelling, task.rule);
  }
  return blanks(text(blanks(from, task.rule), ",", task.rule), task.rule);
}

NodeId SchemaEmitter::colon(NodeId from, const Task& task) {
  if (options_.layout) {
    return text(from, options_.layout->key_separator, task.rule);
  }
  return blanks(text(blanks(from, task.rule), ":", task.rule), task.rule);
}

}  // namespace deepinfer::grammar
