#include "model/deepseek_v41/config_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace deepinfer::model {

namespace {

std::string bounds_text(ConfigReader::Bounds bounds) { return std::to_string(bounds.low) + " … " + std::to_string(bounds.high); }

bool same(const json::Value& a, const json::Value& b) {
  const json::Number* x = a.as_number();
  const json::Number* y = b.as_number();
  if (x != nullptr && y != nullptr) {
    return x->as_double() == y->as_double();
  }
  const json::Array* p = a.as_array();
  const json::Array* q = b.as_array();
  if (p != nullptr && q != nullptr) {
    return std::equal(p->begin(), p->end(), q->begin(), q->end(), same);
  }
  return a == b;
}

}  // namespace

ConfigReader::ConfigReader(const json::Value* object, std::string path, weights::Problems& problems)
    : object_(object), path_(std::move(path)), problems_(problems) {}

const json::Value* ConfigReader::find(std::string_view key) const { return object_ == nullptr ? nullptr : object_->find(key); }

bool ConfigReader::is_null(std::string_view key) const {
  const json::Value* value = find(key);
  return value != nullptr && value->is_null();
}

std::optional<std::int64_t> ConfigReader::in_bounds(const json::Value& value, Bounds bounds) const {
  const json::Number* number = value.as_number();
  const std::optional<std::int64_t> integer = number == nullptr ? std::nullopt : number->as_int64();
  return integer && *integer >= bounds.low && *integer <= bounds.high ? integer : std::nullopt;
}

std::int64_t ConfigReader::integer(std::string_view key, Bounds bounds) {
  const json::Value* value = find(key);
  const std::optional<std::int64_t> out = value == nullptr ? std::nullopt : in_bounds(*value, bounds);
  if (!out) {
    problem(key, "must be an integer in " + bounds_text(bounds));
  }
  return out.value_or(bounds.low);
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key, Bounds bounds) {
  const json::Value* value = find(key);
  const json::Array* items = value == nullptr ? nullptr : value->as_array();
  std::vector<std::int64_t> out;
  bool is_good = items != nullptr;
  for (std::size_t i = 0; is_good && i < items->size(); ++i) {
    const std::optional<std::int64_t> item = in_bounds((*items)[i], bounds);
    is_good = item.has_value();
    out.push_back(item.value_or(bounds.low));
  }
  if (!is_good) {
    problem(key, "must be a list of integers in " + bounds_text(bounds));
  }
  return out;
}

std::vector<std::int32_t> ConfigReader::counts(std::string_view key, Bounds bounds) {
  std::vector<std::int32_t> out;
  for (const std::int64_t value : integers(key, bounds)) {
    out.push_back(static_cast<std::int32_t>(value));
  }
  return out;
}

double ConfigReader::number(std::string_view key, NumberBounds bounds) {
  const json::Value* value = find(key);
  const json::Number* number = value == nullptr ? nullptr : value->as_number();
  const double out = number == nullptr ? NAN : number->as_double();
  if (out >= bounds.low && out <= bounds.high) {
    return out;
  }
  problem(key, "must be a number in " + json::to_text(bounds.low) + " … " + json::to_text(bounds.high));
  return bounds.low;
}

bool ConfigReader::boolean(std::string_view key) {
  const json::Value* value = find(key);
  const bool* out = value == nullptr ? nullptr : value->as_bool();
  if (out == nullptr) {
    problem(key, "must be true or false");
    return false;
  }
  return *out;
}

void ConfigReader::expect(std::string_view key, const json::Value& wanted) {
  const json::Value* value = find(key);
  if (value == nullptr || !same(*value, wanted)) {
    problem(key, "must be " + json::to_text(wanted));
  }
}

void ConfigReader::require(bool holds, std::string_view key, std::string_view must, std::initializer_list<std::string_view> uses) {
  const auto is_bad = [this](std::string_view name) { return bad_keys_.contains(name); };
  if (!holds && !is_bad(key) && std::none_of(uses.begin(), uses.end(), is_bad)) {
    problem(key, must);
  }
}

void ConfigReader::problem(std::string_view key, std::string_view must) {
  constexpr std::size_t kMaxValueText = 80;
  bad_keys_.emplace(key);
  const json::Value* value = find(key);
  std::string text = value == nullptr ? "missing" : json::to_text(*value);
  if (text.size() > kMaxValueText) {
    text.resize(kMaxValueText);
    text += "…";
  }
  problems_.add(path_ + std::string(key) + " is " + text + ": " + std::string(must));
}

}  // namespace deepinfer::model
