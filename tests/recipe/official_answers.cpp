#include "recipe/official_answers.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <string_view>

namespace deepinfer::recipe::testing {

namespace {

using CallIds = std::map<std::string, std::string, std::less<>>;

/// `call_01_` or `call_01_ET_` and 24 generated characters, or the number that stands for them in a recorded answer.
void normalise_call_id(std::string& id, CallIds& ids) {
  static const std::regex pattern(R"((call_\d{2,}_(?:ET_)?)(?:[A-Za-z0-9]{20}\d{4}|#\d+))");
  std::smatch match;
  if (std::regex_match(id, match, pattern)) {
    const std::string prefix = match[1];
    id = ids.try_emplace(id, prefix + "#" + std::to_string(ids.size())).first->second;
  }
}

void normalise(json::Value& value, CallIds& ids) {
  constexpr std::array<std::string_view, 3> kTimes = {"created", "created_at", "completed_at"};
  if (json::Object* object = value.as_object()) {
    for (auto& [key, member] : *object) {
      if (member.as_number() != nullptr && std::ranges::find(kTimes, key) != kTimes.end()) {
        member = 0;
      } else if (member.as_string() != nullptr && (key == "id" || key == "call_id")) {
        normalise_call_id(*member.as_string(), ids);
      } else {
        normalise(member, ids);
      }
    }
  } else if (json::Array* array = value.as_array()) {
    for (json::Value& item : *array) {
      normalise(item, ids);
    }
  }
}

/// The ids of one answer share their numbers, steps first.
void normalise_answer(json::Value& answer) {
  json::Value* result = answer.as_object() != nullptr ? answer.as_object()->find("result") : nullptr;
  if (result == nullptr || result->as_object() == nullptr) {
    return;
  }
  CallIds ids;
  for (const std::string_view part : {"steps", "response"}) {
    if (json::Value* value = result->as_object()->find(part)) {
      normalise(*value, ids);
    }
  }
}

std::string differ(const json::Value& expected, const json::Value& answer, const std::string& path) {
  return path + ": expected " + json::to_text(expected) + ", got " + json::to_text(answer);
}

bool same_number(const json::Number& a, const json::Number& b) {
  return a.is_integer() == b.is_integer() && (a.is_integer() ? a.text == b.text : a.as_double() == b.as_double());
}

std::optional<std::string> object_difference(const json::Value& expected, const json::Value& answer, const std::string& path) {
  for (const auto& [key, value] : *expected.as_object()) {
    const json::Value* other = answer.find(key);
    if (other == nullptr) {
      return path + "." + key + ": missing, expected " + json::to_text(value);
    }
    if (auto difference = json_difference(value, *other, path + "." + key)) {
      return difference;
    }
  }
  for (const auto& [key, value] : *answer.as_object()) {
    if (expected.find(key) == nullptr) {
      return path + "." + key + ": not expected, got " + json::to_text(value);
    }
  }
  return std::nullopt;
}

std::optional<std::string> array_difference(const json::Array& expected, const json::Array& answer, const std::string& path) {
  for (std::size_t i = 0; i < std::min(expected.size(), answer.size()); ++i) {
    if (auto difference = json_difference(expected[i], answer[i], path + "[" + std::to_string(i) + "]")) {
      return difference;
    }
  }
  if (expected.size() != answer.size()) {
    return path + ": expected " + std::to_string(expected.size()) + " items, got " + std::to_string(answer.size());
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> json_difference(const json::Value& expected, const json::Value& answer, const std::string& path) {
  if (expected.as_object() != nullptr && answer.as_object() != nullptr) {
    return object_difference(expected, answer, path);
  }
  if (expected.as_array() != nullptr && answer.as_array() != nullptr) {
    return array_difference(*expected.as_array(), *answer.as_array(), path);
  }
  if (expected.as_number() != nullptr && answer.as_number() != nullptr) {
    return same_number(*expected.as_number(), *answer.as_number()) ? std::nullopt : std::optional(differ(expected, answer, path));
  }
  return expected == answer ? std::nullopt : std::optional(differ(expected, answer, path));
}

std::optional<std::string> stream_difference(json::Value expected, json::Value answer) {
  normalise_answer(expected);
  normalise_answer(answer);
  return json_difference(expected, answer, "answer");
}

}  // namespace deepinfer::recipe::testing
