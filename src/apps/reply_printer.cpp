#include "apps/reply_printer.h"

#include <unistd.h>

#include <cstdio>

namespace deepinfer::apps {
namespace {

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";

const std::string* text_of(const json::Value& object, std::string_view key) {
  const json::Value* const value = object.find(key);
  return value == nullptr ? nullptr : value->as_string();
}

void write(std::string_view text, std::FILE* file) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

ReplyPrinter::ReplyPrinter() : styles_stderr_(::isatty(STDERR_FILENO) != 0) {}

void ReplyPrinter::print(const recipe::Event& event) {
  const auto chunk = json::parse(event.data);
  const json::Value* const choices = chunk ? chunk->find("choices") : nullptr;
  const json::Array* const list = choices == nullptr ? nullptr : choices->as_array();
  const json::Value* const delta = list == nullptr || list->empty() ? nullptr : list->front().find("delta");
  if (delta == nullptr) {
    return;
  }
  if (const std::string* const text = text_of(*delta, "reasoning_content")) {
    print_reasoning(*text);
  }
  if (const std::string* const text = text_of(*delta, "content")) {
    print_content(*text);
  }
  if (const json::Value* const calls = delta->find("tool_calls")) {
    take_calls(*calls);
  }
}

void ReplyPrinter::print_reasoning(std::string_view text) {
  if (text.empty()) {
    return;
  }
  if (!is_thinking_) {
    is_thinking_ = true;
    write(styles_stderr_ ? kDim : "", stderr);
  }
  reasoning_.append(text);
  write(text, stderr);
}

void ReplyPrinter::print_content(std::string_view text) {
  if (text.empty()) {
    return;
  }
  if (is_thinking_) {
    is_thinking_ = false;
    write(styles_stderr_ ? std::string(kPlain) + "\n\n" : "\n\n", stderr);
  }
  content_.append(text);
  write(text, stdout);
}

void ReplyPrinter::take_calls(const json::Value& deltas) {
  const json::Array* const list = deltas.as_array();
  for (const json::Value& delta : list == nullptr ? json::Array{} : *list) {
    if (const std::string* const id = text_of(delta, "id")) {
      calls_.push_back({.id = *id, .name = {}, .arguments = {}});
    }
    const json::Value* const function = delta.find("function");
    if (function == nullptr || calls_.empty()) {
      continue;
    }
    if (const std::string* const name = text_of(*function, "name")) {
      calls_.back().name += *name;
    }
    if (const std::string* const arguments = text_of(*function, "arguments")) {
      calls_.back().arguments += *arguments;
    }
  }
}

void ReplyPrinter::finish() {
  if (is_thinking_) {
    is_thinking_ = false;
    write(styles_stderr_ ? std::string(kPlain) + "\n" : "\n", stderr);
  }
  if (!content_.empty() && !content_.ends_with('\n')) {
    write("\n", stdout);
  }
  for (const Call& call : calls_) {
    write(json::to_text(json::Object{{"name", call.name}, {"arguments", call.arguments}}) + "\n", stdout);
  }
}

json::Value ReplyPrinter::message() const {
  json::Object out{{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) {
    out.set("reasoning_content", reasoning_);
  }
  json::Array calls;
  for (const Call& call : calls_) {
    calls.push_back(json::Object{
        {"id", call.id}, {"type", "function"}, {"function", json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) {
    out.set("tool_calls", std::move(calls));
  }
  return out;
}

}  // namespace deepinfer::apps
