#include "recipe/chat_chunks.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace deepinfer::recipe {

namespace {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::tool_calls:
      return "tool_calls";
    case FinishReason::length:
      return "length";
    case FinishReason::content_filter:
      return "content_filter";
    case FinishReason::stop:
    case FinishReason::stop_sequence:
    case FinishReason::end_of_input:
      return "stop";
  }
  return "stop";
}

void append_usage(std::string& out, const Usage& usage) {
  const std::uint64_t missed = usage.prompt_tokens - std::min(usage.prompt_tokens, usage.cached_tokens);
  out += "{\"prompt_tokens\":";
  append_integer(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_integer(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_integer(out, usage.cached_tokens);
  out += "}";
  if (usage.reasoning_tokens || usage.verified_drafts > 0) {
    out += ",\"completion_tokens_details\":{";
    if (usage.reasoning_tokens) {
      out += "\"reasoning_tokens\":";
      append_integer(out, *usage.reasoning_tokens);
    }
    if (usage.verified_drafts > 0) {
      out += usage.reasoning_tokens ? "," : "";
      out += "\"accepted_prediction_tokens\":";
      append_integer(out, usage.accepted_drafts);
      out += ",\"rejected_prediction_tokens\":";
      append_integer(out, usage.verified_drafts - usage.accepted_drafts);
    }
    out += "}";
  }
  out += ",\"prompt_cache_hit_tokens\":";
  append_integer(out, usage.cached_tokens);
  out += ",\"prompt_cache_miss_tokens\":";
  append_integer(out, missed);
  out += "}";
}

/// `{"id":…,"object":…,"created":…,"model":…`
void append_identity(std::string& out, const ReplyIdentity& identity, std::string_view object) {
  out += "{\"id\":";
  json::append_string(out, identity.id);
  out += ",\"object\":";
  json::append_string(out, object);
  out += ",\"created\":";
  append_integer(out, identity.created);
  out += ",\"model\":";
  json::append_string(out, identity.model);
}

}  // namespace

ChatChunks::ChatChunks(ReplyIdentity identity, ReplyOpening opening, UsageMember usage_member)
    : identity_(std::move(identity)),
      opening_(opening),
      thinking_(opening != ReplyOpening::plain),
      usage_member_(usage_member),
      has_content_(opening != ReplyOpening::reasoning),
      has_reasoning_(opening == ReplyOpening::reasoning) {}

void ChatChunks::start(const Usage& /*prompt*/, const std::optional<std::string>& system_fingerprint, EventBuffer& out) {
  started_ = true;
  if (system_fingerprint) {
    fingerprint_.clear();
    json::append_string(fingerprint_, *system_fingerprint);
  }
  append_identity(head_, identity_, "chat.completion.chunk");
  head_ += ",\"system_fingerprint\":";
  head_ += fingerprint_;
  head_ += ",\"choices\":[{\"index\":0,\"delta\":";
  std::string& chunk = begin_chunk(out);
  switch (opening_) {
    case ReplyOpening::plain:
      chunk += R"({"role":"assistant","content":""})";
      break;
    case ReplyOpening::reasoning:
      chunk += R"({"role":"assistant","content":null,"reasoning_content":""})";
      break;
    case ReplyOpening::continues_content:
      chunk += R"({"role":"assistant","content":"","reasoning_content":null})";
      break;
  }
  end_chunk(chunk);
}

void ChatChunks::add(const ReasoningText& delta, std::string_view logprobs, EventBuffer& out) {
  std::string& chunk = begin_chunk(out);
  chunk += R"({"content":null,"reasoning_content":)";
  json::append_string(chunk, delta.text);
  chunk += "}";
  append_logprobs_member(chunk, "reasoning_content", logprobs);
  reasoning_ += delta.text;
  has_reasoning_ = true;
  if (!logprobs.empty()) {
    append_items(reasoning_logprobs_, logprobs);
  }
}

void ChatChunks::add(const ContentText& delta, std::string_view logprobs, EventBuffer& out) {
  std::string& chunk = begin_chunk(out);
  chunk += R"({"content":)";
  json::append_string(chunk, delta.text);
  chunk += thinking_ ? R"(,"reasoning_content":null})" : "}";
  append_logprobs_member(chunk, "content", logprobs);
  content_ += delta.text;
  has_content_ = true;
  if (!logprobs.empty()) {
    append_items(content_logprobs_, logprobs);
  }
}

void ChatChunks::add(const CallStart& delta, std::string_view call_id, EventBuffer& out) {
  std::string& chunk = begin_chunk(out);
  chunk += R"({"tool_calls":[{"index":)";
  append_integer(chunk, static_cast<std::int64_t>(delta.index));
  chunk += ",\"id\":";
  json::append_string(chunk, call_id);
  chunk += R"(,"type":"function","function":{"name":)";
  json::append_string(chunk, delta.name);
  chunk += R"(,"arguments":""}}]})";
  end_chunk(chunk);
  calls_.push_back({.id = std::string(call_id), .name = std::string(delta.name), .arguments = {}});
}

void ChatChunks::add(const CallArguments& delta, EventBuffer& out) {
  std::string& chunk = begin_chunk(out);
  chunk += R"({"tool_calls":[{"index":)";
  append_integer(chunk, static_cast<std::int64_t>(delta.index));
  chunk += R"(,"function":{"arguments":)";
  json::append_string(chunk, delta.text);
  chunk += "}}]}";
  end_chunk(chunk);
  calls_.back().arguments += delta.text;
}

void ChatChunks::finish(const Finished& end, const Usage& usage, EventBuffer& out) {
  finish_reason_ = finish_reason_name(end.reason);
  usage_ = usage;
  if (!thinking_) {
    usage_.reasoning_tokens.reset();
  }
  has_content_ = true;
  std::string& chunk = begin_chunk(out);
  chunk += thinking_ ? R"({"content":"","reasoning_content":null})" : R"({"content":""})";
  chunk += R"(,"logprobs":null,"finish_reason":")";
  chunk += finish_reason_;
  chunk += "\"}],\"usage\":";
  append_usage(chunk, usage_);
  chunk += "}";
}

std::string& ChatChunks::begin_chunk(EventBuffer& out) const {
  std::string& chunk = out.begin({});
  chunk += head_;
  return chunk;
}

void ChatChunks::end_chunk(std::string& out) const { append_logprobs_member(out, {}, {}); }

void ChatChunks::append_logprobs_member(std::string& out, std::string_view key, std::string_view logprobs) const {
  if (logprobs.empty()) {
    out += R"(,"logprobs":null,"finish_reason":null}])";
  } else {
    out += ",\"logprobs\":{\"";
    out += key;
    out += "\":";
    out += logprobs;
    out += R"(},"finish_reason":null}])";
  }
  out += usage_member_ == UsageMember::null ? ",\"usage\":null}" : "}";
}

std::string ChatChunks::response() const {
  std::string out;
  append_identity(out, identity_, "chat.completion");
  out += ",\"choices\":[";
  if (started_) {
    append_message(out);
  }
  out += "]";
  if (!finish_reason_.empty()) {
    out += ",\"usage\":";
    append_usage(out, usage_);
  }
  out += ",\"system_fingerprint\":";
  out += fingerprint_;
  out += "}";
  return out;
}

void ChatChunks::append_message(std::string& out) const {
  out += R"({"index":0,"message":{"role":"assistant","content":)";
  if (has_content_) {
    json::append_string(out, content_);
  } else {
    out += "null";
  }
  if (has_reasoning_) {
    out += ",\"reasoning_content\":";
    json::append_string(out, reasoning_);
  }
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    out += i == 0 ? R"(,"tool_calls":[{"index":)" : R"(,{"index":)";
    append_integer(out, static_cast<std::uint64_t>(i));
    out += ",\"id\":";
    json::append_string(out, calls_[i].id);
    out += R"(,"type":"function","function":{"name":)";
    json::append_string(out, calls_[i].name);
    out += ",\"arguments\":";
    json::append_string(out, calls_[i].arguments);
    out += "}}";
  }
  out += calls_.empty() ? "},\"logprobs\":" : "]},\"logprobs\":";
  if (content_logprobs_.empty() && reasoning_logprobs_.empty()) {
    out += "null";
  } else {
    out += "{";
    if (!content_logprobs_.empty()) {
      out += "\"content\":" + content_logprobs_;
    }
    if (!reasoning_logprobs_.empty()) {
      out += content_logprobs_.empty() ? "\"reasoning_content\":" : ",\"reasoning_content\":";
      out += reasoning_logprobs_;
    }
    out += "}";
  }
  out += ",\"finish_reason\":";
  if (finish_reason_.empty()) {
    out += "null}";
  } else {
    out.append("\"").append(finish_reason_).append("\"}");
  }
}

}  // namespace deepinfer::recipe
