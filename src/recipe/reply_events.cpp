#include "recipe/reply_events.h"

#include <charconv>
#include <iterator>

namespace deepinfer::recipe {

namespace {

template <class Integer>
void append_digits(std::string& out, Integer value) {
  char digits[24];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), value);
  out.append(std::begin(digits), end);
}

}  // namespace

void EventBuffer::clear() {
  text_.clear();
  begun_.clear();
}

std::string& EventBuffer::begin(std::string_view name) {
  begun_.push_back({.name = name, .offset = text_.size()});
  return text_;
}

std::span<const Event> EventBuffer::events() {
  events_.clear();
  for (std::size_t i = 0; i < begun_.size(); ++i) {
    const std::size_t end = i + 1 < begun_.size() ? begun_[i + 1].offset : text_.size();
    events_.push_back({.name = begun_[i].name, .data = std::string_view(text_).substr(begun_[i].offset, end - begun_[i].offset)});
  }
  return events_;
}

void append_integer(std::string& out, std::uint64_t value) { append_digits(out, value); }
void append_integer(std::string& out, std::int64_t value) { append_digits(out, value); }

void append_items(std::string& list, std::string_view items) {
  constexpr std::string_view kNone = "[]";
  if (list.empty() || list == kNone) {
    list = items;
  } else if (items != kNone) {
    list.back() = ',';
    list.append(items.substr(1));
  }
}

}  // namespace deepinfer::recipe
