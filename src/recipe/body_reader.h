// Reading a typed request out of a JSON body: the first member that does not fit is remembered with its place, and every
// later read returns a default, so that readers need no branches for errors. Values are moved out, the body is consumed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace deepinfer::recipe {

/// Where a value stands in the body. Lives on the stack of the readers; spelled only when something is wrong.
struct Place {
  const Place* parent = nullptr;
  std::string_view key = {};  ///< name of the member; empty for an item of a list
  std::size_t index = 0;      ///< of an item
};

/// "messages[2].content", "" for the body itself.
[[nodiscard]] std::string spell(const Place& place);

/// The first misfit of a body.
class Misfit {
 public:
  void report(const Place& place, std::string_view what);
  [[nodiscard]] bool found() const { return message_.has_value(); }
  /// "messages[2].content: expected a string"; only when found().
  [[nodiscard]] const std::string& message() const { return *message_; }

 private:
  std::optional<std::string> message_;
};

/// A name and what it stands for in an enumeration of the API.
template <class E>
struct Choice {
  std::string_view name;
  E value;
};

/// A JSON value at its place.
class Reader {
 public:
  Reader(json::Value& value, const Place& place, Misfit& misfit) : value_(value), place_(place), misfit_(misfit) {}

  [[nodiscard]] json::Value& value() const { return value_; }
  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] Misfit& misfit() const { return misfit_; }
  void refuse(std::string_view what) const { misfit_.report(place_, what); }

  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] float number() const;

  /// An integer in the range of T that is spelled without fraction and exponent.
  template <std::unsigned_integral T>
  [[nodiscard]] T integer() const {
    return static_cast<T>(integer_up_to(std::numeric_limits<T>::max()));
  }

  /// One of `choices` by its name. The official reader also takes an object with that one key and null.
  template <class E>
  [[nodiscard]] E choice(std::span<const Choice<E>> choices) const {
    return named(choice_name(), choices);
  }

  /// The same for the member that tells the kind of its object, which is a name and nothing else.
  template <class E>
  [[nodiscard]] E tag(std::span<const Choice<E>> choices) const {
    return named(value_.as_string(), choices);
  }

  /// Every item through `read(Reader)`.
  template <class Read>
  [[nodiscard]] auto list(Read read) const {
    std::vector<decltype(read(std::declval<Reader>()))> out;
    json::Array* items = value_.as_array();
    if (items == nullptr) {
      refuse("expected a list");
      return out;
    }
    out.reserve(items->size());
    for (std::size_t i = 0; i < items->size() && !misfit_.found(); ++i) {
      const Place place{.parent = &place_, .index = i};
      out.push_back(read(Reader((*items)[i], place, misfit_)));
    }
    return out;
  }

 private:
  template <class E>
  [[nodiscard]] E named(const std::string* name, std::span<const Choice<E>> choices) const {
    for (const Choice<E>& choice : choices) {
      if (name != nullptr && choice.name == *name) {
        return choice.value;
      }
    }
    refuse_choice(name);
    return choices.front().value;
  }

  [[nodiscard]] const std::string* choice_name() const;
  [[nodiscard]] std::uint64_t integer_up_to(std::uint64_t limit) const;
  void refuse_choice(const std::string* name) const;

  json::Value& value_;
  const Place& place_;
  Misfit& misfit_;
};

/// The members of a JSON object. Null and absent members are the same for optional ones. A member that is only checked is read
/// without using the result.
class Fields {
 public:
  /// A value that is no object is a misfit and then has no members.
  explicit Fields(Reader reader) : reader_(reader), object_(reader.value().as_object()) {
    if (object_ == nullptr) {
      reader_.refuse("expected an object");
    }
  }

  /// The member whatever its type; nullptr when absent.
  [[nodiscard]] json::Value* find(std::string_view key) const { return object_ == nullptr ? nullptr : object_->find(key); }

  /// `read(Reader)` of a member that must be there; null is handed to `read`.
  template <class Read>
  auto required(std::string_view key, Read read) const -> decltype(read(std::declval<Reader>())) {
    json::Value* value = find(key);
    const Place place{.parent = &reader_.place(), .key = key};
    if (value == nullptr) {
      reader_.misfit().report(place, "required");
      return {};
    }
    return read(Reader(*value, place, reader_.misfit()));
  }

  /// `read(Reader)` of a member that is there and not null.
  template <class Read>
  auto optional(std::string_view key, Read read) const -> std::optional<decltype(read(std::declval<Reader>()))> {
    json::Value* value = find(key);
    if (value == nullptr || value->is_null()) {
      return std::nullopt;
    }
    const Place place{.parent = &reader_.place(), .key = key};
    return read(Reader(*value, place, reader_.misfit()));
  }

  std::string text(std::string_view key) const;
  std::optional<std::string> optional_text(std::string_view key) const;
  std::optional<bool> optional_boolean(std::string_view key) const;
  [[nodiscard]] std::optional<float> optional_number(std::string_view key) const;

  template <std::unsigned_integral T>
  std::optional<T> optional_integer(std::string_view key) const {
    return optional(key, [](Reader reader) { return reader.integer<T>(); });
  }

  template <class E>
  E choice(std::string_view key, std::span<const Choice<E>> choices) const {
    return required(key, [choices](Reader reader) { return reader.choice(choices); });
  }

  template <class E>
  E tag(std::string_view key, std::span<const Choice<E>> choices) const {
    return required(key, [choices](Reader reader) { return reader.tag(choices); });
  }

  template <class E>
  std::optional<E> optional_choice(std::string_view key, std::span<const Choice<E>> choices) const {
    return optional(key, [choices](Reader reader) { return reader.choice(choices); });
  }

  /// Any JSON, moved out; nullopt when absent or null.
  [[nodiscard]] std::optional<json::Value> any(std::string_view key) const;

  void refuse(std::string_view what) const { reader_.refuse(what); }

 private:
  Reader reader_;
  json::Object* object_;
};

}  // namespace deepinfer::recipe
