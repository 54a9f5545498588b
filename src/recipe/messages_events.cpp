#include "recipe/messages_events.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "recipe/call_arguments.h"

namespace deepinfer::recipe {

namespace {

std::string_view stop_reason_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::end_of_input:
      return "\"end_turn\"";
    case FinishReason::tool_calls:
      return "\"tool_use\"";
    case FinishReason::length:
      return "\"max_tokens\"";
    case FinishReason::content_filter:
      return "\"refusal\"";
    case FinishReason::stop_sequence:
      return "\"stop_sequence\"";
  }
  return "null";
}

void append_usage(std::string& out, const Usage& usage) {
  out += "{\"input_tokens\":";
  append_integer(out, usage.prompt_tokens - std::min(usage.prompt_tokens, usage.cached_tokens));
  out += ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":";
  append_integer(out, usage.cached_tokens);
  out += ",\"output_tokens\":";
  append_integer(out, usage.completion_tokens);
  out += ",\"service_tier\":\"standard\"}";
}

}  // namespace

MessagesEvents::MessagesEvents(ReplyIdentity identity, ReplyOpening opening, std::string signature)
    : identity_(std::move(identity)), opening_(opening), signature_(std::move(signature)) {}

void MessagesEvents::start(const Usage& prompt, const std::optional<std::string>& /*system_fingerprint*/, EventBuffer& out) {
  usage_ = prompt;
  usage_.completion_tokens = 0;
  std::string& event = out.begin("message_start");
  event += R"({"type":"message_start","message":)";
  append_head(event);
  event += R"(,"content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
  append_usage(event, usage_);
  event += "}}";
  if (opening_ != ReplyOpening::plain) {
    open_block({.kind = BlockKind::thinking, .open = true, .text = {}, .call_id = {}, .name = {}}, out);
  }
}

void MessagesEvents::add(const ReasoningText& delta, std::string_view /*logprobs*/, EventBuffer& out) {
  if (!is_open(BlockKind::thinking)) {
    open_block({.kind = BlockKind::thinking, .open = true, .text = {}, .call_id = {}, .name = {}}, out);
  }
  add_to_block(delta.text, out);
}

void MessagesEvents::add(const ContentText& delta, std::string_view /*logprobs*/, EventBuffer& out) {
  if (!is_open(BlockKind::text)) {
    open_block({.kind = BlockKind::text, .open = true, .text = {}, .call_id = {}, .name = {}}, out);
  }
  add_to_block(delta.text, out);
}

void MessagesEvents::add(const CallStart& delta, std::string_view call_id, EventBuffer& out) {
  open_block({.kind = BlockKind::tool_use, .open = true, .text = {}, .call_id = std::string(call_id), .name = std::string(delta.name)},
             out);
}

void MessagesEvents::add(const CallArguments& delta, EventBuffer& out) { add_to_block(delta.text, out); }

void MessagesEvents::finish(const Finished& end, const Usage& usage, EventBuffer& out) {
  close_block(out);
  usage_ = usage;
  stop_reason_ = stop_reason_json(end.reason);
  if (end.reason == FinishReason::stop_sequence) {
    stop_sequence_.clear();
    json::append_string(stop_sequence_, end.stop_sequence);
  }
  std::string& event = out.begin("message_delta");
  event.append(R"({"type":"message_delta","delta":{"stop_reason":)").append(stop_reason_);
  event.append(",\"stop_sequence\":").append(stop_sequence_).append("},\"usage\":");
  append_usage(event, usage_);
  event += "}";
  out.begin("message_stop") += R"({"type":"message_stop"})";
}

void MessagesEvents::open_block(Block block, EventBuffer& out) {
  close_block(out);
  std::string& event = out.begin("content_block_start");
  event += R"({"type":"content_block_start","index":)";
  append_integer(event, static_cast<std::uint64_t>(blocks_.size()));
  event += ",\"content_block\":";
  append_block(event, block);
  event += "}";
  blocks_.push_back(std::move(block));
  if (blocks_.size() == 1) {
    out.begin("ping") += R"({"type":"ping"})";
  }
}

void MessagesEvents::close_block(EventBuffer& out) {
  if (blocks_.empty() || !blocks_.back().open) {
    return;
  }
  if (blocks_.back().kind == BlockKind::thinking) {
    std::string& event = begin_delta(out, R"("signature_delta","signature":)");
    json::append_string(event, signature_);
    event += "}}";
  }
  blocks_.back().open = false;
  std::string& event = out.begin("content_block_stop");
  event += R"({"type":"content_block_stop","index":)";
  append_integer(event, static_cast<std::uint64_t>(blocks_.size() - 1));
  event += "}";
}

void MessagesEvents::add_to_block(std::string_view text, EventBuffer& out) {
  Block& block = blocks_.back();
  block.text += text;
  std::string_view type_and_key;
  switch (block.kind) {
    case BlockKind::thinking:
      type_and_key = R"("thinking_delta","thinking":)";
      break;
    case BlockKind::text:
      type_and_key = R"("text_delta","text":)";
      break;
    case BlockKind::tool_use:
      type_and_key = R"("input_json_delta","partial_json":)";
      break;
  }
  std::string& event = begin_delta(out, type_and_key);
  json::append_string(event, text);
  event += "}}";
}

bool MessagesEvents::is_open(BlockKind kind) const { return !blocks_.empty() && blocks_.back().open && blocks_.back().kind == kind; }

std::string& MessagesEvents::begin_delta(EventBuffer& out, std::string_view type_and_key) const {
  std::string& event = out.begin("content_block_delta");
  event += R"({"type":"content_block_delta","index":)";
  append_integer(event, static_cast<std::uint64_t>(blocks_.size() - 1));
  event += R"(,"delta":{"type":)";
  event += type_and_key;
  return event;
}

void MessagesEvents::append_head(std::string& out) const {
  out += "{\"id\":";
  json::append_string(out, identity_.id);
  out += R"(,"type":"message","role":"assistant","model":)";
  json::append_string(out, identity_.model);
}

void MessagesEvents::append_block(std::string& out, const Block& block) const {
  switch (block.kind) {
    case BlockKind::thinking:
      out += R"({"type":"thinking","thinking":)";
      json::append_string(out, block.text);
      out += ",\"signature\":";
      json::append_string(out, block.open ? std::string_view() : signature_);
      break;
    case BlockKind::text:
      out += R"({"type":"text","text":)";
      json::append_string(out, block.text);
      break;
    case BlockKind::tool_use:
      out += R"({"type":"tool_use","id":)";
      json::append_string(out, block.call_id);
      out += ",\"name\":";
      json::append_string(out, block.name);
      out += ",\"input\":";
      append_parsed_arguments(out, block.open ? std::string_view() : block.text);
      break;
  }
  out += "}";
}

std::string MessagesEvents::response() const {
  std::string out;
  append_head(out);
  out += ",\"content\":[";
  for (const Block& block : blocks_) {
    if (&block != &blocks_.front()) {
      out += ",";
    }
    append_block(out, block);
  }
  out.append("],\"stop_reason\":").append(stop_reason_);
  out.append(",\"stop_sequence\":").append(stop_sequence_).append(",\"usage\":");
  append_usage(out, usage_);
  out += "}";
  return out;
}

}  // namespace deepinfer::recipe
