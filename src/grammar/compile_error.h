// Why a constraint was refused, with everything the probe and the HTTP error body need.
#pragma once

#include <cstddef>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace deepinfer::grammar {

enum class ErrorCode {
  invalid_json,
  invalid_schema,
  unsupported,
  unsatisfiable,
  syntax,
  limit,
  timeout,
  cancelled,
  bad_kind,
};

/// The spelling of a code in error bodies and in the probe.
[[nodiscard]] std::string_view code_name(ErrorCode code);

struct CompileError {
  ErrorCode code = ErrorCode::invalid_schema;
  std::string message{};  ///< one line: what and where
  std::string pointer{};  ///< JSON Pointer into the schema, when there is one
  std::string keyword{};  ///< the keyword or construct at fault
  std::string limit{};    ///< name of the limit for ErrorCode::limit
  std::string tool{};     ///< name of the tool whose parameters are at fault
  std::size_t line = 0;   ///< from 1; 0: no position
  std::size_t column = 0;
};

template <class T>
using Compiled = std::expected<T, CompileError>;

[[nodiscard]] inline std::unexpected<CompileError> refuse(CompileError error) { return std::unexpected(std::move(error)); }

}  // namespace deepinfer::grammar
