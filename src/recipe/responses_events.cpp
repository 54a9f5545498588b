#include "recipe/responses_events.h"

#include <utility>

#include "base/json.h"
#include "recipe/call_arguments.h"
#include "recipe/token_segments.h"

namespace deepinfer::recipe {

namespace {

void append_optional_string(std::string& out, const std::optional<std::string>& text) {
  if (text) {
    json::append_string(out, *text);
  } else {
    out += "null";
  }
}

std::string& begin_event(std::string_view name, EventBuffer& out) {
  std::string& event = out.begin(name);
  event.append("{\"type\":\"").append(name).append("\"");
  return event;
}

void append_usage(std::string& out, const Usage& usage) {
  out += "{\"input_tokens\":";
  append_integer(out, usage.prompt_tokens);
  out += ",\"input_tokens_details\":{\"cached_tokens\":";
  append_integer(out, usage.cached_tokens);
  out += "},\"output_tokens\":";
  append_integer(out, usage.completion_tokens);
  out += ",\"output_tokens_details\":{\"reasoning_tokens\":";
  append_integer(out, usage.reasoning_tokens.value_or(0));
  out += "},\"total_tokens\":";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  out += "}";
}

}  // namespace

ResponsesEvents::ResponsesEvents(ReplyIdentity identity, ResponsesDetails details, std::function<std::int64_t()> unix_time)
    : identity_(std::move(identity)), details_(std::move(details)), unix_time_(std::move(unix_time)) {
  report_settings(ResponsesEcho());
}

void ResponsesEvents::start(const Usage& /*prompt*/, const std::optional<std::string>& /*system_fingerprint*/, EventBuffer& out) {
  report_settings(details_.echo);
  add_response_event("response.created", out);
  add_response_event("response.in_progress", out);
}

void ResponsesEvents::add(const ReasoningText& delta, std::string_view /*logprobs*/, EventBuffer& out) {
  if (!is_open(ItemKind::reasoning)) {
    ResponsesItem item;
    item.kind = ItemKind::reasoning;
    open_item(std::move(item), out);
  }
  add_content_delta(delta.text, {}, out);
}

void ResponsesEvents::add(const ContentText& delta, std::string_view logprobs, EventBuffer& out) {
  if (!is_open(ItemKind::message)) {
    open_item(ResponsesItem(), out);
  }
  add_content_delta(delta.text, logprobs, out);
}

void ResponsesEvents::add(const CallStart& delta, std::string_view call_id, EventBuffer& out) {
  if (is_open(ItemKind::message)) {
    items_.back().is_commentary = true;
  }
  ResponsesItem item = make_call_item(delta.name, details_);
  item.call_id = call_id;
  open_item(std::move(item), out);
}

void ResponsesEvents::add(const CallArguments& delta, EventBuffer& out) {
  ResponsesItem& item = items_.back();
  if (item.kind != ItemKind::custom_tool_call) {
    add_call_delta(delta.text, out);
    return;
  }
  std::string input;
  item.custom_input.take(delta.text, input);
  if (!input.empty()) {
    add_call_delta(input, out);
  }
}

void ResponsesEvents::finish(const Finished& end, const Usage& usage, EventBuffer& out) {
  status_ = ItemStatus::completed;
  if (end.reason == FinishReason::length || end.reason == FinishReason::content_filter) {
    status_ = ItemStatus::incomplete;
    incomplete_reason_ = end.reason == FinishReason::length ? "max_output_tokens" : "content_filter";
  }
  close_item(status_, out);
  usage_ = usage;
  completed_at_ = unix_time_();
  add_response_event(status_ == ItemStatus::completed ? "response.completed" : "response.incomplete", out);
}

std::string ResponsesEvents::response() const {
  std::string out;
  append_response(out);
  return out;
}

void ResponsesEvents::report_settings(const ResponsesEcho& echo) {
  std::string& first = settings_before_output_;
  first = ",\"instructions\":";
  append_optional_string(first, echo.instructions);
  first += ",\"max_output_tokens\":";
  if (echo.max_output_tokens) {
    append_integer(first, std::uint64_t{*echo.max_output_tokens});
  } else {
    first += "null";
  }
  first += ",\"max_tool_calls\":null,\"model\":";
  json::append_string(first, identity_.model);
  first += ",\"moderation\":null";

  std::string& second = settings_before_usage_;
  second = R"(,"parallel_tool_calls":true,"presence_penalty":0.0,"previous_response_id":null,"prompt_cache_key":null)";
  second += ",\"prompt_cache_retention\":null,\"reasoning\":";
  json::append_text(second, echo.reasoning);
  second += R"(,"safety_identifier":null,"service_tier":"default","store":false,"temperature":)";
  append_float(second, echo.temperature);
  second += ",\"text\":";
  json::append_text(second, echo.text);
  second += ",\"tool_choice\":";
  json::append_text(second, echo.tool_choice);
  second += ",\"tools\":";
  json::append_text(second, echo.tools);
  second += ",\"top_logprobs\":";
  append_integer(second, std::uint64_t{echo.top_logprobs});
  second += ",\"top_p\":";
  append_float(second, echo.top_p);
  second += ",\"truncation\":\"disabled\"";

  user_.clear();
  append_optional_string(user_, echo.user);
}

bool ResponsesEvents::is_open(ItemKind kind) const { return !items_.empty() && items_.back().kind == kind; }

void ResponsesEvents::open_item(ResponsesItem item, EventBuffer& out) {
  close_item(ItemStatus::completed, out);
  name_item(item, identity_.id, items_.size());
  items_.push_back(std::move(item));
  add_item_event("response.output_item.added", out);
  if (is_open(ItemKind::reasoning) || is_open(ItemKind::message)) {
    add_part_event("response.content_part.added", out);
    items_.back().has_part = true;
  }
}

void ResponsesEvents::close_item(ItemStatus status, EventBuffer& out) {
  if (items_.empty()) {
    return;
  }
  if (is_open(ItemKind::reasoning) || is_open(ItemKind::message)) {
    close_content(out);
  } else if (!is_open(ItemKind::tool_search_call)) {
    close_arguments(out);
  } else if (!parse_arguments(items_.back().text)) {
    status = ItemStatus::incomplete;
  }
  items_.back().status = status;
  add_item_event("response.output_item.done", out);
}

void ResponsesEvents::close_content(EventBuffer& out) {
  const ResponsesItem& item = items_.back();
  const bool is_message = item.kind == ItemKind::message;
  std::string& event = begin_event(is_message ? "response.output_text.done" : "response.reasoning_text.done", out);
  event += ",\"content_index\":0";
  append_item_id(event);
  if (is_message) {
    event.append(",\"logprobs\":").append(item.logprobs);
  }
  append_output_index(event);
  append_sequence_number(event);
  event += ",\"text\":";
  json::append_string(event, item.text);
  event += "}";
  add_part_event("response.content_part.done", out);
}

void ResponsesEvents::close_arguments(EventBuffer& out) {
  ResponsesItem& item = items_.back();
  const bool is_custom = item.kind == ItemKind::custom_tool_call;
  if (is_custom) {
    std::string rest;
    item.custom_input.finish(rest);
    if (!rest.empty()) {
      add_call_delta(rest, out);
    }
  }
  std::string& event = begin_event(is_custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done", out);
  event += is_custom ? ",\"input\":" : ",\"arguments\":";
  json::append_string(event, item.text);
  append_item_id(event);
  append_output_index(event);
  append_sequence_number(event);
  event += "}";
}

void ResponsesEvents::add_content_delta(std::string_view text, std::string_view logprobs, EventBuffer& out) {
  ResponsesItem& item = items_.back();
  item.text += text;
  const bool is_message = item.kind == ItemKind::message;
  std::string& event = begin_event(is_message ? "response.output_text.delta" : "response.reasoning_text.delta", out);
  event += R"(,"content_index":0,"delta":)";
  json::append_string(event, text);
  append_item_id(event);
  if (is_message) {
    event.append(",\"logprobs\":").append(logprobs.empty() ? "[]" : logprobs);
    append_items(item.logprobs, logprobs.empty() ? "[]" : logprobs);
  }
  append_output_index(event);
  append_sequence_number(event);
  event += "}";
}

void ResponsesEvents::add_call_delta(std::string_view text, EventBuffer& out) {
  ResponsesItem& item = items_.back();
  item.text += text;
  if (item.kind == ItemKind::tool_search_call) {
    return;
  }
  const bool is_custom = item.kind == ItemKind::custom_tool_call;
  std::string& event = begin_event(is_custom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta", out);
  event += ",\"delta\":";
  json::append_string(event, text);
  append_item_id(event);
  append_output_index(event);
  append_sequence_number(event);
  event += "}";
}

void ResponsesEvents::add_item_event(std::string_view name, EventBuffer& out) {
  std::string& event = begin_event(name, out);
  event += ",\"item\":";
  append_item(event, items_.back());
  append_output_index(event);
  append_sequence_number(event);
  event += "}";
}

void ResponsesEvents::add_part_event(std::string_view name, EventBuffer& out) {
  std::string& event = begin_event(name, out);
  event += ",\"content_index\":0";
  append_item_id(event);
  append_output_index(event);
  event += ",\"part\":";
  append_part(event, items_.back());
  append_sequence_number(event);
  event += "}";
}

void ResponsesEvents::add_response_event(std::string_view name, EventBuffer& out) {
  std::string& event = begin_event(name, out);
  event += ",\"response\":";
  append_response(event);
  append_sequence_number(event);
  event += "}";
}

void ResponsesEvents::append_item_id(std::string& event) const {
  event += ",\"item_id\":";
  json::append_string(event, items_.back().id);
}

void ResponsesEvents::append_output_index(std::string& event) const {
  event += ",\"output_index\":";
  append_integer(event, static_cast<std::uint64_t>(items_.size() - 1));
}

void ResponsesEvents::append_sequence_number(std::string& event) {
  event += ",\"sequence_number\":";
  append_integer(event, sequence_number_++);
}

void ResponsesEvents::append_response(std::string& out) const {
  out += "{\"id\":";
  json::append_string(out, identity_.id);
  out += R"(,"object":"response","created_at":)";
  append_integer(out, identity_.created);
  out.append(R"(,"status":")").append(status_name(status_)).append(R"(","background":false,"completed_at":)");
  if (completed_at_) {
    append_integer(out, *completed_at_);
  } else {
    out += "null";
  }
  out += R"(,"content_filters":null,"error":null,"frequency_penalty":0.0,"incomplete_details":)";
  if (incomplete_reason_.empty()) {
    out += "null";
  } else {
    out.append(R"({"reason":")").append(incomplete_reason_).append("\"}");
  }
  out += settings_before_output_;
  out += ",\"output\":[";
  for (const ResponsesItem& item : items_) {
    if (&item != &items_.front()) {
      out += ",";
    }
    append_item(out, item);
  }
  out += "]";
  out += settings_before_usage_;
  out += ",\"usage\":";
  if (usage_) {
    append_usage(out, *usage_);
  } else {
    out += "null";
  }
  out += ",\"user\":";
  out += user_;
  out += ",\"metadata\":{}}";
}

}  // namespace deepinfer::recipe
