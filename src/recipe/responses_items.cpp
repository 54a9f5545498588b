#include "recipe/responses_items.h"

#include <algorithm>

#include "base/json.h"
#include "recipe/call_arguments.h"
#include "recipe/reply_events.h"

namespace deepinfer::recipe {

namespace {

std::string_view id_prefix(ItemKind kind) {
  switch (kind) {
    case ItemKind::reasoning:
      return "rs_";
    case ItemKind::message:
      return "msg_";
    case ItemKind::function_call:
      return "fc_";
    case ItemKind::custom_tool_call:
      return "ctc_";
    case ItemKind::tool_search_call:
      return "tsc_";
  }
  return "";
}

std::string_view type_name(ItemKind kind) {
  switch (kind) {
    case ItemKind::reasoning:
      return "reasoning";
    case ItemKind::message:
      return "message";
    case ItemKind::function_call:
      return "function_call";
    case ItemKind::custom_tool_call:
      return "custom_tool_call";
    case ItemKind::tool_search_call:
      return "tool_search_call";
  }
  return "";
}

void append_member(std::string& out, std::string_view key, std::string_view text) {
  out.append(",\"").append(key).append("\":");
  json::append_string(out, text);
}

}  // namespace

std::string_view status_name(ItemStatus status) {
  switch (status) {
    case ItemStatus::in_progress:
      return "in_progress";
    case ItemStatus::completed:
      return "completed";
    case ItemStatus::incomplete:
      return "incomplete";
  }
  return "";
}

ResponsesItem make_call_item(std::string_view name, const ResponsesDetails& details) {
  ResponsesItem item;
  item.name = name;
  if (details.has_client_tool_search && name == "tool_search") {
    item.kind = ItemKind::tool_search_call;
  } else if (std::ranges::find(details.custom_tools, name) != details.custom_tools.end()) {
    item.kind = ItemKind::custom_tool_call;
  } else {
    item.kind = ItemKind::function_call;
    if (const auto local = details.namespace_tools.find(name); local != details.namespace_tools.end()) {
      item.name_space = local->second.first;
      item.name = local->second.second;
    }
  }
  return item;
}

void name_item(ResponsesItem& item, std::string_view response_id, std::size_t index) {
  item.id.assign(id_prefix(item.kind)).append(response_id).append("_");
  append_integer(item.id, static_cast<std::uint64_t>(index));
  item.encrypted_content.assign(response_id).append("-");
  append_integer(item.encrypted_content, static_cast<std::uint64_t>(index));
}

void append_part(std::string& out, const ResponsesItem& item) {
  if (item.kind == ItemKind::reasoning) {
    out += R"({"type":"reasoning_text")";
  } else {
    out += R"({"type":"output_text","annotations":[],"logprobs":)";
    out += item.logprobs;
  }
  append_member(out, "text", item.text);
  out += "}";
}

void append_item(std::string& out, const ResponsesItem& item) {
  out.append(R"({"type":")").append(type_name(item.kind)).append("\"");
  append_member(out, "id", item.id);
  out.append(R"(,"status":")").append(status_name(item.status)).append("\"");
  switch (item.kind) {
    case ItemKind::reasoning:
    case ItemKind::message:
      if (item.kind == ItemKind::message) {
        out.append(R"(,"role":"assistant","phase":)").append(item.is_commentary ? "\"commentary\"" : "\"final_answer\"");
      }
      out += ",\"content\":[";
      if (item.has_part) {
        append_part(out, item);
      }
      out += "]";
      if (item.kind == ItemKind::reasoning) {
        out += ",\"summary\":[]";
        append_member(out, "encrypted_content", item.encrypted_content);
      }
      break;
    case ItemKind::function_call:
      append_member(out, "call_id", item.call_id);
      append_member(out, "name", item.name);
      if (!item.name_space.empty()) {
        append_member(out, "namespace", item.name_space);
      }
      append_member(out, "arguments", item.text);
      break;
    case ItemKind::custom_tool_call:
      append_member(out, "call_id", item.call_id);
      append_member(out, "name", item.name);
      append_member(out, "input", item.text);
      break;
    case ItemKind::tool_search_call:
      append_member(out, "call_id", item.call_id);
      out += R"(,"execution":"client","arguments":)";
      append_parsed_arguments(out, item.status == ItemStatus::completed ? std::string_view(item.text) : std::string_view());
      break;
  }
  out += "}";
}

}  // namespace deepinfer::recipe
