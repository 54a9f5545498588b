// One JSON Schema text: its subschemas by place, and what every reference in it means. Nothing is ever fetched.
// Not the meaning of keywords: that is schema_expand.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "grammar/budget.h"
#include "grammar/compile_error.h"

namespace deepinfer::grammar {

enum class Draft { draft4, draft6, draft7, draft2019, draft2020 };

/// A subschema: where it stands and what a relative reference in it is relative to.
struct SchemaPlace {
  const json::Value* value = nullptr;
  std::string pointer;  ///< JSON Pointer from the root of the text
  std::string base;     ///< URI of the enclosing resource, without fragment
  Draft draft = Draft::draft2020;
  bool has_dialect = false;  ///< $schema was given here or above
  /// The base without an $id beside a $ref, which counts in newer drafts only, where no $schema says which draft is meant.
  std::optional<std::string> other_base = {};
};

using SchemaIndex = std::uint32_t;

class SchemaDocument {
 public:
  /// `root` must outlive the document.
  [[nodiscard]] static Compiled<SchemaDocument> read(const json::Value& root);

  [[nodiscard]] SchemaIndex root() const { return 0; }
  [[nodiscard]] const SchemaPlace& at(SchemaIndex index) const { return places_[index]; }
  /// The subschema at `value`, which stands behind `path` (a JSON Pointer suffix) in `parent`.
  [[nodiscard]] SchemaIndex child(SchemaIndex parent, const json::Value& value, const std::string& path);
  /// Errors: unsupported for addresses outside the text, invalid_schema for places that do not exist.
  [[nodiscard]] Compiled<SchemaIndex> resolve(SchemaIndex from, std::string_view reference, std::string_view keyword);
  /// A $dynamicRef: as resolve(), but unsupported when the target depends on how the schema was reached.
  [[nodiscard]] Compiled<SchemaIndex> resolve_dynamic(SchemaIndex from, std::string_view reference);
  /// Some schema of the text has one of the unevaluated… keywords.
  [[nodiscard]] bool uses_unevaluated() const { return uses_unevaluated_; }
  [[nodiscard]] std::size_t size() const { return places_.size(); }

 private:
  void scan(SchemaIndex index);
  void scan_children(SchemaIndex index, const json::Object& object);
  void enter_resource(SchemaPlace& place, const json::Object& object);
  [[nodiscard]] SchemaIndex add(SchemaPlace place);
  [[nodiscard]] Compiled<SchemaIndex> follow_pointer(SchemaIndex from, std::string_view pointer, const CompileError& missing);

  std::vector<SchemaPlace> places_;
  std::unordered_map<const json::Value*, SchemaIndex> by_value_;
  std::unordered_map<std::string, SchemaIndex> resources_;         // by URI
  std::unordered_map<std::string, SchemaIndex> anchors_;           // by URI#name
  std::unordered_map<std::string, std::int32_t> dynamic_anchors_;  // by name: how many
  std::unordered_map<std::string, bool> is_dynamic_;               // by URI#name
  bool uses_unevaluated_ = false;
};

/// RFC 3986 reference resolution, without fragment handling beyond keeping it.
[[nodiscard]] std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace deepinfer::grammar
