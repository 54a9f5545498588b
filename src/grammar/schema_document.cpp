#include "grammar/schema_document.h"

#include <algorithm>
#include <optional>

namespace deepinfer::grammar {

namespace {

/// Where subschemas stand: one schema, a list of schemas, or a map of schemas.
constexpr std::string_view kSingle[] = {
    "additionalItems",  "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties"};
constexpr std::string_view kLists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::string_view kMaps[] = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"};

struct Uri {
  std::string scheme;
  std::optional<std::string> authority;
  std::string path;
  std::string rest;  // query
};

Uri split_uri(std::string_view text) {
  Uri out;
  const std::size_t colon = text.find_first_of(":/?#");
  if (colon != std::string_view::npos && colon > 0 && text[colon] == ':') {
    out.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    const std::size_t end = std::min(text.find_first_of("/?", 2), text.size());
    out.authority = text.substr(2, end - 2);
    text.remove_prefix(end);
  }
  const std::size_t query = std::min(text.find('?'), text.size());
  out.path = text.substr(0, query);
  out.rest = text.substr(query);
  return out;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  bool ends_in_slash = false;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    ends_in_slash = part == "." || part == "..";
    if (part == "..") {
      if (parts.size() > 1) {
        parts.pop_back();
      }
    } else if (part != ".") {
      parts.push_back(part);
    }
    at = end + 1;
  }
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    out += i > 0 ? "/" : "";
    out += parts[i];
  }
  return ends_in_slash ? out + "/" : out;
}

std::string decode_percent(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto hex = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    };
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (const char c : key) {
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

std::string unescape_pointer(std::string_view key) {
  std::string out;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool is_escape = key[i] == '~' && i + 1 < key.size() && (key[i + 1] == '0' || key[i + 1] == '1');
    out.push_back(is_escape ? (key[i + 1] == '0' ? '~' : '/') : key[i]);
    i += is_escape ? 1 : 0;
  }
  return out;
}

std::optional<Draft> draft_of(const json::Object& object) {
  const json::Value* schema = object.find("$schema");
  if (schema == nullptr || schema->as_string() == nullptr) {
    return std::nullopt;
  }
  const std::string& uri = *schema->as_string();
  constexpr std::pair<std::string_view, Draft> kDrafts[] = {{"draft-03", Draft::draft4},
                                                            {"draft-04", Draft::draft4},
                                                            {"draft-06", Draft::draft6},
                                                            {"draft-07", Draft::draft7},
                                                            {"2019-09", Draft::draft2019}};
  for (const auto& [name, draft] : kDrafts) {
    if (uri.find(name) != std::string::npos) {
      return draft;
    }
  }
  return Draft::draft2020;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  const Uri target = split_uri(reference);
  if (!target.scheme.empty()) {
    return std::string(reference);
  }
  Uri out = split_uri(base);
  if (target.authority) {
    out.authority = target.authority;
    out.path = without_dots(target.path);
    out.rest = target.rest;
  } else if (target.path.empty()) {
    out.rest = target.rest.empty() ? out.rest : target.rest;
  } else {
    const std::size_t slash = out.path.rfind('/');
    const std::string folder = slash == std::string::npos ? (out.authority ? "/" : "") : out.path.substr(0, slash + 1);
    out.path = target.path.starts_with('/') ? without_dots(target.path) : without_dots(folder + target.path);
    out.rest = target.rest;
  }
  return (out.scheme.empty() ? "" : out.scheme + ":") + (out.authority ? "//" + *out.authority : "") + out.path + out.rest;
}

Compiled<SchemaDocument> SchemaDocument::read(const json::Value& root) {
  SchemaDocument out;
  SchemaPlace place{.value = &root, .pointer = "", .base = ""};
  if (root.as_object() != nullptr) {
    place.draft = draft_of(*root.as_object()).value_or(Draft::draft2020);
  }
  out.resources_[""] = 0;
  out.scan(out.add(std::move(place)));
  return out;
}

SchemaIndex SchemaDocument::add(SchemaPlace place) {
  const auto index = static_cast<SchemaIndex>(places_.size());
  by_value_.emplace(place.value, index);
  places_.push_back(std::move(place));
  return index;
}

SchemaIndex SchemaDocument::child(SchemaIndex parent, const json::Value& value, const std::string& path) {
  if (const auto known = by_value_.find(&value); known != by_value_.end()) {
    return known->second;
  }
  SchemaPlace place = places_[parent];
  place.value = &value;
  place.pointer += path;
  place.other_base.reset();
  const SchemaIndex index = add(std::move(place));
  scan(index);
  return index;
}

void SchemaDocument::enter_resource(SchemaPlace& place, const json::Object& object) {
  place.draft = draft_of(object).value_or(place.draft);
  place.has_dialect |= object.find("$schema") != nullptr;
  const json::Value* ref = object.find("$ref");
  if (ref != nullptr && place.draft <= Draft::draft7) {
    return;  // siblings of $ref do not count there
  }
  const json::Value* id = object.find(place.draft == Draft::draft4 && object.find("$id") == nullptr ? "id" : "$id");
  if (id == nullptr || id->as_string() == nullptr) {
    return;
  }
  const std::string_view text = *id->as_string();
  const std::size_t hash = std::min(text.find('#'), text.size());
  const auto index = by_value_.at(place.value);
  if (hash > 0) {
    place.other_base = ref != nullptr && !place.has_dialect ? std::optional(place.base) : std::nullopt;
    place.base = resolve_uri(place.base, text.substr(0, hash));
    resources_.emplace(place.base, index);
  }
  if (hash + 1 < text.size()) {  // the older form of $anchor; newer drafts allow no such $id, so that it cannot be misread
    anchors_.emplace(place.base + std::string(text.substr(hash)), index);
  }
}

/// Registers ids and anchors of a subschema and of all below it.
void SchemaDocument::scan(SchemaIndex index) {
  const json::Object* object = places_[index].value->as_object();
  if (object == nullptr) {
    return;
  }
  enter_resource(places_[index], *object);
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    const json::Value* anchor = object->find(keyword);
    if (anchor != nullptr && anchor->as_string() != nullptr) {
      const std::string uri = places_[index].base + "#" + *anchor->as_string();
      anchors_.emplace(uri, index);
      if (keyword == "$dynamicAnchor") {
        ++dynamic_anchors_[*anchor->as_string()];
        is_dynamic_[uri] = true;
      }
    }
  }
  const json::Value* recursive = object->find("$recursiveAnchor");
  if (recursive != nullptr && recursive->as_bool() != nullptr && *recursive->as_bool()) {
    ++dynamic_anchors_["$recursiveAnchor"];
  }
  uses_unevaluated_ |= object->find("unevaluatedProperties") != nullptr || object->find("unevaluatedItems") != nullptr;
  scan_children(index, *object);
}

void SchemaDocument::scan_children(SchemaIndex index, const json::Object& object) {
  for (const auto& [key, value] : object) {
    const std::string path = "/" + escape_pointer(key);
    if (std::ranges::count(kSingle, key) > 0 && value.as_object() != nullptr) {
      static_cast<void>(child(index, value, path));
    }
    if (std::ranges::count(kLists, key) > 0 && value.as_array() != nullptr) {
      for (std::size_t i = 0; i < value.as_array()->size(); ++i) {
        static_cast<void>(child(index, (*value.as_array())[i], path + "/" + std::to_string(i)));
      }
    }
    if (std::ranges::count(kMaps, key) > 0 && value.as_object() != nullptr) {
      for (const auto& [name, member] : *value.as_object()) {
        if (member.as_object() != nullptr) {
          static_cast<void>(child(index, member, path + "/" + escape_pointer(name)));
        }
      }
    }
  }
}

Compiled<SchemaIndex> SchemaDocument::follow_pointer(SchemaIndex from, std::string_view pointer, const CompileError& missing) {
  SchemaIndex at = from;
  const json::Value* value = places_[from].value;
  std::string path;
  while (!pointer.empty()) {
    if (!pointer.starts_with('/')) {
      return refuse(missing);
    }
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string key = unescape_pointer(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    if (const json::Array* items = value->as_array()) {
      const bool is_index = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (!is_index || std::stoul(key) >= items->size()) {
        return refuse(missing);
      }
      value = &(*items)[std::stoul(key)];
    } else {
      value = value->find(key);
    }
    if (value == nullptr) {
      return refuse(missing);
    }
    path += "/" + escape_pointer(key);
    if (const auto known = by_value_.find(value); known != by_value_.end()) {
      at = known->second;
      path.clear();
    }
  }
  if (value->as_object() == nullptr && value->as_bool() == nullptr) {
    return refuse(missing);
  }
  return child(at, *value, path);
}

Compiled<SchemaIndex> SchemaDocument::resolve(SchemaIndex from, std::string_view reference, std::string_view keyword) {
  const std::string pointer = places_[from].pointer + "/" + std::string(keyword);
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string uri = hash == 0 ? places_[from].base : resolve_uri(places_[from].base, reference.substr(0, hash));
  if (const std::optional<std::string>& other = places_[from].other_base) {
    if ((hash == 0 ? *other : resolve_uri(*other, reference.substr(0, hash))) != uri) {
      return refuse({.code = ErrorCode::unsupported,
                     .message = "unsupported $ref beside $id without $schema, which drafts read differently, at " + pointer,
                     .pointer = pointer,
                     .keyword = std::string(keyword)});
    }
  }
  const std::string fragment = decode_percent(hash < reference.size() ? reference.substr(hash + 1) : "");
  auto resource = resources_.find(uri);
  if (resource == resources_.end() && hash == 0) {
    resource = resources_.find("");
  }
  if (resource == resources_.end()) {
    return refuse({.code = ErrorCode::unsupported,
                   .message = "unsupported reference to another document " + uri + " at " + pointer,
                   .pointer = pointer,
                   .keyword = std::string(keyword)});
  }
  const CompileError missing{.code = ErrorCode::invalid_schema,
                             .message = "reference " + std::string(reference) + " leads nowhere at " + pointer,
                             .pointer = pointer,
                             .keyword = std::string(keyword)};
  if (!fragment.empty() && !fragment.starts_with('/')) {
    const auto anchor = anchors_.find(uri + "#" + fragment);
    return anchor == anchors_.end() ? Compiled<SchemaIndex>(refuse(missing)) : anchor->second;
  }
  return follow_pointer(resource->second, fragment, missing);
}

Compiled<SchemaIndex> SchemaDocument::resolve_dynamic(SchemaIndex from, std::string_view reference) {
  const bool is_recursive = reference == "#";
  const Compiled<SchemaIndex> out = resolve(from, reference, is_recursive ? "$recursiveRef" : "$dynamicRef");
  if (!out) {
    return out;
  }
  const std::string name =
      is_recursive ? "$recursiveAnchor" : std::string(reference.substr(std::min(reference.find('#'), reference.size() - 1) + 1));
  const auto dynamic = dynamic_anchors_.find(name);
  const std::string uri = places_[*out].base + "#" + name;
  const bool is_static = dynamic == dynamic_anchors_.end() || (!is_recursive && !is_dynamic_.contains(uri)) || dynamic->second <= 1;
  if (is_static) {
    return out;
  }
  const std::string pointer = places_[from].pointer + (is_recursive ? "/$recursiveRef" : "/$dynamicRef");
  return refuse({.code = ErrorCode::unsupported,
                 .message = "unsupported reference " + std::string(reference) + " whose target depends on the way to it at " + pointer,
                 .pointer = pointer,
                 .keyword = is_recursive ? "$recursiveRef" : "$dynamicRef"});
}

}  // namespace deepinfer::grammar
