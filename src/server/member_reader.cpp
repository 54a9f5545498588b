#include "server/member_reader.h"

#include <charconv>
#include <iterator>
#include <utility>

namespace deepinfer::server {

std::string plain_number(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  return {text, end};
}

const json::Value* MemberReader::find(std::string_view name) const {
  const json::Value* const value = body_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void MemberReader::refuse(std::string message) {
  if (problem_.empty()) {
    problem_ = std::move(message);
  }
}

Result<void> MemberReader::result() const {
  if (problem_.empty()) {
    return {};
  }
  return fail(ErrorKind::invalid_argument, problem_);
}

std::optional<bool> MemberReader::boolean(std::string_view name) {
  const json::Value* const value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->as_bool() == nullptr) {
    refuse("'" + std::string(name) + "' must be a boolean");
    return std::nullopt;
  }
  return *value->as_bool();
}

std::optional<std::string_view> MemberReader::text(std::string_view name) {
  const json::Value* const value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->as_string() == nullptr) {
    refuse("'" + std::string(name) + "' must be a string");
    return std::nullopt;
  }
  return *value->as_string();
}

std::optional<std::int64_t> MemberReader::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const json::Value* const value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const json::Number* const number = value->as_number();
  const std::optional<std::int64_t> integer = number == nullptr ? std::nullopt : number->as_int64();
  if (!integer || *integer < least || *integer > most) {
    refuse("Invalid " + std::string(name) + " value, it must be an integer in the range [" + std::to_string(least) + ", " +
           std::to_string(most) + "]");
    return std::nullopt;
  }
  return integer;
}

std::optional<double> MemberReader::number(std::string_view name, double least, double most) {
  const json::Value* const value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const json::Number* const number = value->as_number();
  if (number == nullptr || !(number->as_double() >= least && number->as_double() <= most)) {
    refuse("Invalid " + std::string(name) + " value, the valid range of " + std::string(name) + " is [" + plain_number(least) + ", " +
           plain_number(most) + "]");
    return std::nullopt;
  }
  return number->as_double();
}

}  // namespace deepinfer::server
