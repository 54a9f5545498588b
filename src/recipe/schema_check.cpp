#include "recipe/schema_check.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "recipe/schema_keywords.h"
#include "recipe/uri_reference.h"

namespace deepinfer::recipe {

namespace {

using json::Object;
using json::Value;
using Problem = std::optional<std::string>;

/// What `$schema` names, in the spelling without http(s) and without a fragment mark; empty stands for the default.
constexpr std::pair<std::string_view, Draft> kDialects[] = {
    {"", Draft::d2020},
    {"://json-schema.org/schema", Draft::d2020},
    {"://json-schema.org/draft/2020-12/schema", Draft::d2020},
    {"://json-schema.org/draft/2019-09/schema", Draft::d2019},
    {"://json-schema.org/draft-07/schema", Draft::d7},
    {"://json-schema.org/draft-06/schema", Draft::d6},
    {"://json-schema.org/draft-04/schema", Draft::d4},
};

std::optional<Draft> draft_of(const Object& schema) {
  const Value* named = schema.find("$schema");
  if (named == nullptr || named->as_string() == nullptr) {
    return Draft::d2020;  // another type is found by the shape check
  }
  std::string_view name = *named->as_string();
  while (name.ends_with('#')) {
    name.remove_suffix(1);
  }
  for (const std::string_view scheme : {"https", "http"}) {
    if (name.starts_with(scheme) && name.substr(scheme.size()).starts_with(':')) {
      name.remove_prefix(scheme.size());
      break;
    }
  }
  for (const auto& [dialect, draft] : kDialects) {
    if (dialect == name) {
      return draft;
    }
  }
  return std::nullopt;
}

/// Meta-schemas that a schema of each draft may refer to.
bool is_meta_schema(std::string_view uri, Draft draft) {
  constexpr std::string_view k2020 = "https://json-schema.org/draft/2020-12/";
  constexpr std::string_view k2019 = "https://json-schema.org/draft/2019-09/";
  constexpr std::string_view kVocabularies[] = {"core",   "applicator",        "unevaluated",      "validation", "meta-data",
                                                "format", "format-annotation", "format-assertion", "content"};
  const auto is_part = [uri, &kVocabularies](std::string_view base) {
    if (!uri.starts_with(base)) {
      return false;
    }
    const std::string_view part = uri.substr(base.size());
    constexpr std::string_view kMeta = "meta/";
    return part == "schema" ||
           (part.starts_with(kMeta) && std::ranges::find(kVocabularies, part.substr(kMeta.size())) != std::end(kVocabularies));
  };
  switch (draft) {
    case Draft::d4:
      return uri == "http://json-schema.org/draft-04/schema";
    case Draft::d6:
      return uri == "http://json-schema.org/draft-06/schema";
    case Draft::d7:
      return uri == "http://json-schema.org/draft-07/schema";
    case Draft::d2019:
      return is_part(k2019);
    case Draft::d2020:
      return is_part(k2020);
  }
  return false;
}

/// A schema with the base URI that is in force around it.
struct Located {
  const Value* schema = nullptr;
  std::string base;
};

/// References of one schema document: identifiers and anchors are collected first, then what validation reaches is resolved.
class References {
 public:
  explicit References(Draft draft) : draft_(draft) {}

  Problem check(const Value& root) {
    resources_[""] = &root;
    if (Problem problem = collect(root, "")) {
      return problem;
    }
    for (const auto& [uri, reference] : external_) {
      if (!resources_.contains(uri) && !is_meta_schema(uri, draft_)) {
        return "the resource of `" + reference + "` is not part of the schema, and nothing is fetched";
      }
    }
    return resolve_all(root, "");
  }

 private:
  [[nodiscard]] bool is_older() const { return draft_ != Draft::d2019 && draft_ != Draft::d2020; }

  static const std::string* text_member(const Object& schema, std::string_view key) {
    const Value* value = schema.find(key);
    return value == nullptr ? nullptr : value->as_string();
  }

  [[nodiscard]] const std::string* identifier_of(const Object& schema) const {
    return text_member(schema, draft_ == Draft::d4 ? "id" : "$id");
  }

  /// The base URI inside `schema`. Up to draft 7 an identifier that is only a fragment is an anchor.
  [[nodiscard]] std::string base_inside(const Object& schema, const std::string& base) const {
    const std::string* identifier = identifier_of(schema);
    return identifier == nullptr || identifier->empty() || identifier->starts_with('#') ? base : resolve_uri(base, *identifier);
  }

  Problem collect(const Value& schema, const std::string& outer_base) {
    const Object* members = schema.as_object();
    if (members == nullptr) {
      return std::nullopt;
    }
    for (const std::string_view key : {"$schema", "$ref", draft_ == Draft::d4 ? "id" : "$id"}) {
      const std::string* text = text_member(*members, key);
      if (text != nullptr && !is_uri_reference(*text)) {
        return "invalid URI reference `" + *text + "`";
      }
    }
    const std::string base = base_inside(*members, outer_base);
    if (base != outer_base) {
      resources_.try_emplace(base, &schema);
    }
    collect_anchors(*members, schema, base);
    if (const std::string* reference = text_member(*members, "$ref"); reference != nullptr && !reference->starts_with('#')) {
      external_.try_emplace(resolve_uri(base, *reference), *reference);
    }
    return visit_subschemas(*members, draft_, Subschemas::all, [&](const Value& subschema) { return collect(subschema, base); });
  }

  void collect_anchors(const Object& members, const Value& schema, const std::string& base) {
    const std::string* identifier = identifier_of(members);
    if (is_older() && identifier != nullptr && identifier->starts_with('#')) {
      anchors_.try_emplace({base, identifier->substr(1)}, &schema);
    }
    for (const std::string_view key : {"$anchor", "$dynamicAnchor"}) {
      const std::string* anchor = text_member(members, key);
      if (anchor != nullptr && find_keyword(key, draft_) != nullptr) {
        anchors_.try_emplace({base, *anchor}, &schema);
      }
    }
  }

  Problem resolve_all(const Value& schema, const std::string& outer_base) {
    const Object* members = schema.as_object();
    if (members == nullptr || !visited_.insert(&schema).second) {
      return std::nullopt;
    }
    const std::string base = base_inside(*members, outer_base);
    for (const std::string_view key : {"$ref", "$dynamicRef"}) {
      const std::string* reference = text_member(*members, key);
      if (reference == nullptr || find_keyword(key, draft_) == nullptr) {
        continue;
      }
      if (Problem problem = resolve(*reference, base)) {
        return problem;
      }
      if (is_older()) {
        return std::nullopt;  // keywords beside $ref do not count
      }
    }
    return visit_subschemas(*members, draft_, Subschemas::reached, [&](const Value& subschema) { return resolve_all(subschema, base); });
  }

  /// The target of a reference must be a schema whose own references resolve.
  Problem resolve(const std::string& reference, const std::string& base) {
    if (!is_uri_reference(reference)) {
      return "invalid URI reference `" + reference + "`";
    }
    const std::string uri = resolve_uri(base, reference);
    if (is_meta_schema(uri, draft_)) {
      return std::nullopt;
    }
    const auto resource = resources_.find(uri);
    if (resource == resources_.end()) {
      return "the resource of `" + reference + "` is not part of the schema, and nothing is fetched";
    }
    const std::string fragment = percent_decode(split_uri(reference).fragment);
    Located target{resource->second, uri};
    if (fragment.starts_with('/')) {
      if (Problem problem = follow_pointer(fragment, target)) {
        return problem;
      }
    } else if (!fragment.empty()) {
      const auto anchor = anchors_.find({uri, fragment});
      if (anchor == anchors_.end()) {
        return "anchor `" + fragment + "` does not exist";
      }
      target.schema = anchor->second;
    }
    if (Problem problem = shape_problem(*target.schema, draft_)) {
      return problem;
    }
    return resolve_all(*target.schema, target.base);
  }

  /// JSON pointer from `target`, which moves to the place.
  Problem follow_pointer(std::string_view pointer, Located& target) const {
    const std::string missing = "pointer `" + std::string(pointer) + "` does not exist";
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const std::size_t end = std::min(pointer.find('/'), pointer.size());
      const std::string token = unescaped(pointer.substr(0, end));
      pointer.remove_prefix(end);
      if (const Object* members = target.schema->as_object()) {
        target.base = base_inside(*members, target.base);
        target.schema = members->find(token);
      } else if (const json::Array* items = target.schema->as_array()) {
        std::size_t index = 0;
        const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), index);
        const bool is_index = error == std::errc{} && stop == token.data() + token.size();
        target.schema = is_index && index < items->size() ? &(*items)[index] : nullptr;
      } else {
        target.schema = nullptr;
      }
      if (target.schema == nullptr) {
        return missing;
      }
    }
    return std::nullopt;
  }

  /// "~1" is a slash, "~0" a tilde.
  static std::string unescaped(std::string_view token) {
    std::string out;
    for (std::size_t i = 0; i < token.size(); ++i) {
      const bool is_escape = token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1');
      out.push_back(!is_escape ? token[i] : token[i + 1] == '0' ? '~' : '/');
      i += is_escape ? 1 : 0;
    }
    return out;
  }

  Draft draft_;
  std::unordered_map<std::string, const Value*> resources_;              ///< by URI; "" is the document
  std::map<std::pair<std::string, std::string>, const Value*> anchors_;  ///< by resource and name
  std::map<std::string, std::string> external_;                          ///< resolved URI → reference as written
  std::unordered_set<const Value*> visited_;
};

/// Most schemas of tools have neither.
bool has_references(const Value& value) {
  if (const Object* members = value.as_object()) {
    for (const auto& [key, member] : *members) {
      if (key.starts_with('$') || key == "id" || has_references(member)) {
        return true;
      }
    }
  } else if (const json::Array* items = value.as_array()) {
    return std::ranges::any_of(*items, has_references);
  }
  return false;
}

}  // namespace

std::optional<std::string> schema_problem(const Value& schema) {
  const Object* members = schema.as_object();
  const std::optional<Draft> draft = members == nullptr ? Draft::d2020 : draft_of(*members);
  if (!draft) {
    return "unknown meta-schema `" + *members->find("$schema")->as_string() + "`";
  }
  if (Problem problem = shape_problem(schema, *draft)) {
    return problem;
  }
  return has_references(schema) ? References(*draft).check(schema) : std::nullopt;
}

}  // namespace deepinfer::recipe
