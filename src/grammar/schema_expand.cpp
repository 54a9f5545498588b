// Formulas to shapes, one schema object at a time. Keywords about one type are in schema_types.cpp, those that combine schemas in
// schema_combine.cpp.
#include "grammar/schema_expand.h"

#include <algorithm>
#include <array>

#include "grammar/numbers.h"

namespace deepinfer::grammar {

namespace {

/// $ref to $ref to …: a longer chain is a loop.
constexpr std::uint32_t kMaxAliasSteps = 200;
constexpr std::array<std::string_view, 22> kAnnotations = {
    "$schema",         "$id",           "id",         "$anchor",        "$comment",         "$vocabulary",
    "$defs",           "definitions",   "title",      "description",    "default",          "examples",
    "readOnly",        "writeOnly",     "deprecated", "$dynamicAnchor", "$recursiveAnchor", "contentMediaType",
    "contentEncoding", "contentSchema", "example",    "$dynamicId"};

constexpr std::array<std::string_view, 7> kTypes = {"null", "boolean", "number", "integer", "string", "array", "object"};

bool is_annotation(std::string_view keyword) {
  return keyword.starts_with("x-") || std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

}  // namespace

std::string pointer_segment(std::string_view key) {
  std::string out = "/";
  for (const char c : key) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

SchemaExpander::SchemaExpander(ExprPool& pool, SchemaDocument& document, const CompileOptions& options, const Budget& budget)
    : pool_(pool),
      document_(document),
      options_(options),
      budget_(budget),
      algebra_(pool, formulas_, [this](FormulaId formula) -> const Shape& { return shape(formula); }) {}

void SchemaExpander::fail_with(CompileError error) {
  if (!error_) {
    error_ = std::move(error);
  }
}

CompileError SchemaExpander::located(CompileError error, FormulaId formula) const {
  const Formula* part = &formulas_.at(formula);
  while (part->kind != FormulaKind::schema && !part->parts.empty()) {
    part = &formulas_.at(part->parts.front());
  }
  if (!error.pointer.empty() || part->kind != FormulaKind::schema) {
    return error;
  }
  const SchemaPlace& place = document_.at(part->schema);
  const bool has_keyword = !error.keyword.empty() && place.value->find(error.keyword) != nullptr;
  error.pointer = place.pointer + (has_keyword ? pointer_segment(error.keyword) : "");
  error.message += error.pointer.empty() ? " at the root" : " at " + error.pointer;
  return error;
}

void SchemaExpander::invalid(const Node& node, const std::string& keyword, const std::string& what) {
  const std::string pointer = document_.at(node.index).pointer + pointer_segment(keyword);
  fail_with({.code = ErrorCode::invalid_schema,
             .message = "\"" + keyword + "\" " + what + " at " + pointer,
             .pointer = pointer,
             .keyword = keyword});
}

void SchemaExpander::unsupported(const Node& node, const std::string& keyword, const std::string& what) {
  const std::string pointer = document_.at(node.index).pointer + pointer_segment(keyword);
  fail_with({.code = ErrorCode::unsupported,
             .message = "unsupported keyword \"" + keyword + "\"" + (what.empty() ? "" : " (" + what + ")") + " at " + pointer,
             .pointer = pointer,
             .keyword = keyword});
}

FormulaId SchemaExpander::formula_of(SchemaIndex index) {
  const SchemaPlace& place = document_.at(index);
  if (const bool* boolean = place.value->as_bool()) {
    return *boolean ? kAnyValue : kNoValue;
  }
  const json::Object* object = place.value->as_object();
  if (object == nullptr) {
    fail_with({.code = ErrorCode::invalid_schema,
               .message = "a schema must be an object or a boolean, not " + std::string(place.value->type_name()) + ", at \"" +
                          place.pointer + "\"",
               .pointer = place.pointer});
    return kNoValue;
  }
  const json::Value* ref = nullptr;
  for (const auto& [key, value] : *object) {
    if (key == "$ref" && value.as_string() != nullptr) {
      ref = &value;
    } else if (!is_annotation(key) && (ref == nullptr || place.draft > Draft::draft7)) {
      return formulas_.schema(index);
    }
  }
  if (ref == nullptr) {
    return kAnyValue;
  }
  const Compiled<SchemaIndex> target = document_.resolve(index, *ref->as_string(), "$ref");
  if (!target) {
    fail_with(target.error());
    return kNoValue;
  }
  if (++alias_steps_ > kMaxAliasSteps) {
    return kNoValue;  // a loop of references without content
  }
  const FormulaId out = formula_of(*target);
  --alias_steps_;
  return out;
}

FormulaId SchemaExpander::child(const Node& node, const json::Value& value, const std::string& path) {
  if (value.as_object() == nullptr && value.as_bool() == nullptr) {
    const std::string pointer = document_.at(node.index).pointer + path;
    fail_with({.code = ErrorCode::invalid_schema,
               .message = "a schema must be an object or a boolean, not " + std::string(value.type_name()) + ", at " + pointer,
               .pointer = pointer});
    return kNoValue;
  }
  return formula_of(document_.child(node.index, value, path));
}

const Shape& SchemaExpander::shape(FormulaId formula) {
  if (shapes_.size() <= formula) {
    shapes_.resize(formulas_.size());
    open_at_.resize(formulas_.size(), 0);
  }
  if (shapes_[formula] != nullptr) {
    return *shapes_[formula];
  }
  if (!error_) {
    error_ = budget_.spent(pool_.bytes() + formulas_.size() * 512);
  }
  constexpr std::uint32_t kMaxStack = 2000;
  if (error_ || stack_size_ > kMaxStack) {
    if (!error_) {
      fail_with({.code = ErrorCode::limit, .message = "schemas refer to each other too deeply", .limit = "depth"});
    }
    return nothing_;
  }
  if (open_at_[formula] != 0) {  // the schema is part of itself without a value in between: that part adds nothing
    lowest_loop_ = std::min(lowest_loop_, open_at_[formula]);
    if (negations_ > 0) {
      fail_with(located(
          {.code = ErrorCode::unsupported, .message = "unsupported schema that contains its own complement", .keyword = "not"}, formula));
    }
    return nothing_;
  }
  open_at_[formula] = ++stack_size_;
  auto out = std::make_unique<Shape>(compute(formula));
  --stack_size_;
  const std::uint32_t own_place = std::exchange(open_at_[formula], 0);
  if (algebra_.failure() && !error_) {
    fail_with(located({.code = ErrorCode::unsupported, .message = "unsupported " + *algebra_.failure(), .keyword = *algebra_.failure()},
                      formula));
  }
  if (lowest_loop_ < own_place) {  // true only while the schema further out is open: not to be remembered
    loose_.push_back(std::move(out));
    return *loose_.back();
  }
  lowest_loop_ = 0xFFFFFFFF;
  shapes_[formula] = std::move(out);
  return *shapes_[formula];
}

Shape SchemaExpander::compute(FormulaId id) {
  const Formula formula = formulas_.at(id);
  switch (formula.kind) {
    case FormulaKind::any:
      return algebra_.anything();
    case FormulaKind::none:
      return {};
    case FormulaKind::constant:
      return constant_shape(*formula.constant);
    case FormulaKind::schema: {
      const SchemaPlace place = document_.at(formula.schema);
      return expand({.index = formula.schema, .object = place.value->as_object(), .draft = place.draft});
    }
    case FormulaKind::negate: {
      ++negations_;
      Shape out = algebra_.negate(shape(formula.parts[0]));
      --negations_;
      return out;
    }
    case FormulaKind::all:
    case FormulaKind::either:
      break;
  }
  Shape out = shape(formula.parts[0]);
  for (std::size_t i = 1; i < formula.parts.size() && !error_; ++i) {
    const Shape& next = shape(formula.parts[i]);
    out = formula.kind == FormulaKind::all ? algebra_.both(out, next) : algebra_.either(out, next);
  }
  return out;
}

Shape SchemaExpander::constant_shape(const json::Value& value) {
  Shape out;
  if (value.is_null()) {
    out.null = true;
  } else if (const bool* boolean = value.as_bool()) {
    (*boolean ? out.yes : out.no) = true;
  } else if (const json::Number* number = value.as_number()) {
    const std::optional<Decimal> decimal = decimal_of(number->text);
    if (decimal) {
      out.number = {.plain = equal_to(pool_, *decimal), .has_exponents = false, .is_whole = number->is_integer()};
    } else {
      fail_with(
          {.code = ErrorCode::unsupported, .message = "unsupported number of more than 4096 digits in a constant", .keyword = "const"});
    }
  } else if (const std::string* text = value.as_string()) {
    const std::u32string word = to_code_points(*text);
    out.string = pool_.words({&word, 1});
  } else if (const json::Array* items = value.as_array()) {
    ArrayClause clause{.rest = kNoValue,
                       .least = static_cast<std::uint32_t>(items->size()),
                       .most = static_cast<std::uint32_t>(items->size()),
                       .evaluated_all = true,
                       .has_keywords = true};
    for (const json::Value& item : *items) {
      clause.prefix.push_back(formulas_.constant(item));
    }
    out.arrays.push_back(std::move(clause));
  } else {
    ObjectClause clause{.rules = {{.value = kNoValue}}, .evaluated = ExprPool::kAnyText, .has_keywords = true};
    for (const auto& [key, member] : *value.as_object()) {
      clause.properties.push_back({.name = key, .value = formulas_.constant(member), .is_required = true, .is_declared = true});
    }
    out.objects.push_back(std::move(clause));
  }
  return out;
}

Shape SchemaExpander::types_of(const Node& node) {
  const json::Value* type = node.object->find("type");
  if (type == nullptr) {
    return algebra_.anything();
  }
  std::vector<std::string> names;
  if (type->as_string() != nullptr) {
    names.push_back(*type->as_string());
  } else if (type->as_array() != nullptr) {
    for (const json::Value& name : *type->as_array()) {
      names.push_back(name.as_string() != nullptr ? *name.as_string() : "");
    }
  } else {
    invalid(node, "type", "must be a string or an array of strings");
  }
  const Shape all = algebra_.anything();
  Shape out;
  for (const std::string& name : names) {
    if (std::ranges::find(kTypes, name) == kTypes.end()) {
      if (name == "any" && node.draft == Draft::draft4) {
        return all;
      }
      invalid(node, "type", "names no type: \"" + name + "\"");
    }
    out.null |= name == "null";
    out.yes |= name == "boolean";
    out.no |= name == "boolean";
    if (name == "number") {
      out.number = all.number;
    } else if (name == "integer" && !out.number.has_exponents) {
      out.number = {.plain = whole_numbers(pool_), .has_exponents = false, .is_whole = true};
    } else if (name == "string") {
      out.string = all.string;
    } else if (name == "array") {
      out.arrays = all.arrays;
    } else if (name == "object") {
      out.objects = all.objects;
    }
  }
  return out;
}

Shape SchemaExpander::expand(const Node& node) {
  if (node.draft <= Draft::draft7 && node.object->find("$ref") != nullptr) {
    return reference(node, "$ref", *node.object->find("$ref"));
  }
  Shape out = types_of(node);
  std::set<std::string> done;
  for (const auto& [keyword, value] : *node.object) {
    if (error_) {
      return {};
    }
    apply(node, keyword, out, done);
  }
  apply_unevaluated(node, out);
  return out;
}

void SchemaExpander::apply(const Node& node, const std::string& keyword, Shape& out, std::set<std::string>& done) {
  static const std::set<std::string, std::less<>> kNumbers = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  static const std::set<std::string, std::less<>> kStrings = {"minLength", "maxLength", "pattern", "format"};
  static const std::set<std::string, std::less<>> kArrays = {"items",    "prefixItems", "additionalItems", "minItems",
                                                             "maxItems", "uniqueItems", "contains"};
  static const std::set<std::string, std::less<>> kObjects = {"properties",    "patternProperties", "additionalProperties", "required",
                                                              "propertyNames", "minProperties",     "maxProperties"};
  static const std::set<std::string, std::less<>> kElsewhere = {"type", "minContains",           "maxContains",     "then",
                                                                "else", "unevaluatedProperties", "unevaluatedItems"};
  const json::Value& value = *node.object->find(keyword);
  if (kNumbers.contains(keyword)) {
    if (done.insert("numbers").second) {
      apply_numbers(node, out);
    }
  } else if (kStrings.contains(keyword)) {
    if (done.insert("strings").second) {
      apply_strings(node, out);
    }
  } else if (kArrays.contains(keyword)) {
    if (done.insert("arrays").second) {
      apply_arrays(node, out);
    }
  } else if (kObjects.contains(keyword)) {
    if (done.insert("objects").second) {
      apply_objects(node, out);
    }
  } else if (keyword == "enum") {
    if (value.as_array() == nullptr) {
      return invalid(node, keyword, "must be an array");
    }
    out = algebra_.both(out, finite(node, *value.as_array()));
  } else if (keyword == "const" && node.draft != Draft::draft4) {
    out = algebra_.both(out, shape(formulas_.constant(value)));
  } else if (keyword == "$ref" || (keyword == "$dynamicRef" && node.draft == Draft::draft2020) ||
             (keyword == "$recursiveRef" && node.draft == Draft::draft2019)) {
    out = algebra_.both(out, reference(node, keyword, value));
  } else if (keyword == "allOf") {
    for (const FormulaId branch : branches(node, keyword, value)) {
      out = algebra_.both(out, shape(branch));
    }
  } else if (keyword == "anyOf") {
    out = algebra_.both(out, any_of(branches(node, keyword, value)));
  } else if (keyword == "oneOf") {
    out = algebra_.both(out, one_of(branches(node, keyword, value)));
  } else if (keyword == "not") {
    out = algebra_.both(out, shape(formulas_.negate(child(node, value, "/not"))));
  } else if (keyword == "if" && node.draft >= Draft::draft7) {
    out = algebra_.both(out, conditional(node));
  } else if (keyword == "dependencies" || keyword == "dependentRequired" || keyword == "dependentSchemas") {
    if (value.as_object() == nullptr) {
      return invalid(node, keyword, "must be an object");
    }
    apply_dependencies(node, keyword, *value.as_object(), out);
  } else if (!is_annotation(keyword) && !kElsewhere.contains(keyword)) {
    warnings_.insert("unknown keyword \"" + keyword + "\" at " + document_.at(node.index).pointer + pointer_segment(keyword));
  }
}

}  // namespace deepinfer::grammar
