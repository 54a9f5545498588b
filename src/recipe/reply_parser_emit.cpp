// The deltas of the reply parser: what the text of a stage and the end of a stage add to the reply.
#include <algorithm>

#include "base/json.h"
#include "recipe/call_names.h"
#include "recipe/reply_parser.h"

namespace deepinfer::recipe {

namespace {

bool needs_escape(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; });
}

}  // namespace

void ReplyParser::emit_text(std::string_view text, std::uint64_t source) {
  switch (stage_) {
    case Stage::reasoning:
      deltas_.emplace_back(ReasoningText{.text = text, .source = source});
      break;
    case Stage::content:
      if (parse_json_output_ && is_improved_) {
        prose_.append(text);
      } else {
        deltas_.emplace_back(ContentText{.text = parse_json_output_ ? " " : text, .source = source});
      }
      break;
    case Stage::json:
      deltas_.emplace_back(ContentText{.text = text, .source = source});
      break;
    case Stage::after_json:
      if (!is_improved_) {
        deltas_.emplace_back(ContentText{.text = " ", .source = source});
      }
      break;
    case Stage::name:
      name_.append(text);
      break;
    case Stage::value:
      if (value_is_string_) {
        emit_escaped(text);
      } else if (is_improved_) {
        raw_value_.append(text);
      } else {
        emit_arguments(text);
      }
      break;
    case Stage::key:
      if (is_improved_) {
        emit_escaped(text);
      } else {
        emit_arguments(text);
      }
      break;
    case Stage::calls:
    case Stage::arguments:
    case Stage::value_type:
    case Stage::finished:
      break;
  }
}

void ReplyParser::emit_held(const Held& held) {
  switch (held.effect) {
    case Effect::json_bracket:
      deltas_.emplace_back(ContentText{.text = held.bracket == '{' ? "{" : "[", .source = held.source});
      break;
    case Effect::start_call:
      start_call();
      break;
    case Effect::start_parameter:
      if (is_improved_) {
        emit_arguments(has_parameters_ ? ", \"" : "{\"");
      } else {
        emit_arguments(has_parameters_ ? ", " : "{");
      }
      has_parameters_ = true;
      break;
    case Effect::end_key:
      emit_arguments(is_improved_ ? "\": " : ": ");
      break;
    case Effect::end_key_open:
      emit_arguments("\": \"");
      break;
    case Effect::open_string:
      emit_arguments("\"");
      break;
    case Effect::close_value:
      if (value_is_string_) {
        emit_arguments("\"");
      } else if (is_improved_) {
        emit_raw_value();
      }
      break;
    case Effect::close_call:
      emit_arguments(has_parameters_ ? "}" : "{}");
      break;
    case Effect::nothing:
    case Effect::lead_newline:
    case Effect::open_content:
    case Effect::open_raw:
    case Effect::stop:
      break;
  }
}

void ReplyParser::emit_escaped(std::string_view text) {
  if (!needs_escape(text)) {
    emit_arguments(text);
    return;
  }
  std::string& escaped = scratch();
  json::append_escaped(escaped, text);
  emit_arguments(escaped);
}

/// A value that says it is JSON and is not becomes a string.
void ReplyParser::emit_raw_value() {
  std::string& value = scratch();
  if (json::parse(raw_value_, {.max_depth = 256}).has_value()) {
    value.swap(raw_value_);
  } else {
    json::append_string(value, raw_value_);
  }
  emit_arguments(value);
}

void ReplyParser::start_call() {
  std::string& name = scratch();
  name.swap(name_);
  name_.clear();
  skips_call_ = is_improved_ && !is_plain_call_name(name);
  if (!skips_call_) {
    deltas_.emplace_back(CallStart{.index = num_calls_++, .name = name});
  }
}

std::string& ReplyParser::scratch() {
  if (num_scratch_ == scratch_.size()) {
    scratch_.emplace_back();
  }
  std::string& text = scratch_[num_scratch_++];
  text.clear();
  return text;
}

}  // namespace deepinfer::recipe
