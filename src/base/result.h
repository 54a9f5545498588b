// Result<T>: the way every failure that a caller, file or peer can cause travels.
// Not for broken invariants: those are check() in base/check.h.
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace deepinfer {

/// What kind of thing went wrong; decides the HTTP status and the exit code, never the text.
enum class ErrorKind {
  invalid_argument,  ///< the caller's value is wrong; the message names it
  not_found,         ///< a file, id or name that does not exist
  exhausted,         ///< a stated limit is reached (memory, queue, length)
  corrupt,           ///< bytes that do not have the promised form
  unsupported,       ///< well formed, but outside what this build or machine can do
  io,                ///< the operating system refused
  cancelled,         ///< asked to stop
};

/// One failure: a sentence for a person that says what to change.
struct Error {
  ErrorKind kind = ErrorKind::invalid_argument;
  std::string message;

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = std::expected<T, Error>;

/// `return fail(ErrorKind::not_found, "…");` from any function that returns a Result.
[[nodiscard]] inline std::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return std::unexpected(Error{.kind = kind, .message = std::move(message)});
}

/// Passes an inner failure on, with what was being done put in front: "reading config.json: …".
[[nodiscard]] inline std::unexpected<Error> fail(Error inner, std::string_view doing) {
  inner.message.insert(0, std::string(doing) + ": ");
  return std::unexpected(std::move(inner));
}

}  // namespace deepinfer
