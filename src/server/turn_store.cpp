#include "server/turn_store.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace deepinfer::server {
namespace {

/// What a list node, a map entry and the shared turn cost beside their texts.
constexpr std::size_t kOverheadBytes = 512;

bool equal_numbers(const json::Number& a, const json::Number& b) {
  return a == b || (!(a.is_integer() && b.is_integer()) && a.as_double() == b.as_double());
}

/// The same value whatever the order of members and the spelling of fractions.
bool equal_values(const json::Value& a, const json::Value& b) {
  if (const json::Object* const object = a.as_object()) {
    const json::Object* const other = b.as_object();
    return other != nullptr && object->size() == other->size() && std::ranges::all_of(*object, [other](const auto& member) {
             const json::Value* const found = other->find(member.first);
             return found != nullptr && equal_values(member.second, *found);
           });
  }
  if (const json::Array* const items = a.as_array()) {
    const json::Array* const other = b.as_array();
    return other != nullptr && std::ranges::equal(*items, *other, equal_values);
  }
  if (const json::Number* const number = a.as_number()) {
    const json::Number* const other = b.as_number();
    return other != nullptr && equal_numbers(*number, *other);
  }
  return a == b;
}

bool equal_arguments(const std::string& a, const std::string& b) {
  if (a == b) {
    return true;
  }
  constexpr json::ParseLimits kLimits{.max_depth = recipe::kMaxBodyDepth};
  const Result<json::Value> left = json::parse(a, kLimits);
  const Result<json::Value> right = json::parse(b, kLimits);
  return left && right && equal_values(*left, *right);
}

/// APIs differ in whether leading and trailing blanks of a text survive the way to the client and back.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool is_sent_back(const recipe::ReplyStream::Turn& said, const recipe::AssistantMessage& message) {
  if (message.prefix || !message.tool_calls || message.tool_calls->size() != said.calls.size()) {
    return false;
  }
  const std::string_view reasoning = message.reasoning_content ? trimmed(*message.reasoning_content) : std::string_view();
  if (trimmed(message.content) != trimmed(said.content) || (!reasoning.empty() && reasoning != trimmed(said.reasoning))) {
    return false;
  }
  return std::ranges::equal(said.calls, *message.tool_calls, [](const recipe::ReplyCall& call, const recipe::ToolCall& sent) {
    return call.id == sent.id && call.name == sent.name && equal_arguments(call.arguments, sent.arguments);
  });
}

std::size_t bytes_of(const recipe::ReplyStream::Turn& said, const recipe::GeneratedTurn& generated) {
  std::size_t bytes = kOverheadBytes + said.content.size() + said.reasoning.size() + generated.text.size();
  for (const recipe::ReplyCall& call : said.calls) {
    bytes += sizeof call + call.id.size() + call.name.size() + call.arguments.size();
  }
  return bytes + generated.ids.size() * sizeof(TokenId);
}

}  // namespace

void TurnStore::keep(std::string_view owner, const recipe::ReplyStream::Turn& said, recipe::GeneratedTurn generated) {
  if (said.calls.empty()) {
    return;
  }
  const std::size_t bytes = bytes_of(said, generated);
  if (bytes > limits_.max_bytes || limits_.max_turns == 0) {
    return;
  }
  Kept kept{.owner = std::string(owner),
            .said = said,
            .generated = std::make_shared<const recipe::GeneratedTurn>(std::move(generated)),
            .bytes = bytes};
  const std::scoped_lock lock(mutex_);
  const std::string& id = said.calls.front().id;
  if (by_first_call_.contains(id)) {
    return;  // ids are random: this does not happen, and the first turn stays
  }
  while (!turns_.empty() && (turns_.size() >= limits_.max_turns || num_bytes_ + bytes > limits_.max_bytes)) {
    forget_oldest();
  }
  turns_.push_front(std::move(kept));
  by_first_call_.emplace(id, turns_.begin());
  num_bytes_ += bytes;
}

void TurnStore::forget_oldest() {
  const Kept& oldest = turns_.back();
  by_first_call_.erase(oldest.said.calls.front().id);
  num_bytes_ -= oldest.bytes;
  turns_.pop_back();
}

void TurnStore::restore(std::string_view owner, recipe::Conversation& conversation) {
  for (recipe::Message& message : conversation.messages) {
    auto* const assistant = std::get_if<recipe::AssistantMessage>(&message);
    if (assistant == nullptr || !assistant->tool_calls || assistant->tool_calls->empty()) {
      continue;
    }
    const std::scoped_lock lock(mutex_);
    const auto found = by_first_call_.find(assistant->tool_calls->front().id);
    if (found == by_first_call_.end() || found->second->owner != owner || !is_sent_back(found->second->said, *assistant)) {
      continue;
    }
    turns_.splice(turns_.begin(), turns_, found->second);
    assistant->generated = found->second->generated;
  }
}

std::size_t TurnStore::num_turns() const {
  const std::scoped_lock lock(mutex_);
  return turns_.size();
}

std::size_t TurnStore::num_bytes() const {
  const std::scoped_lock lock(mutex_);
  return num_bytes_;
}

}  // namespace deepinfer::server
