#include "grammar/budget.h"

namespace deepinfer::grammar {

std::string_view code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_json:
      return "invalid_json";
    case ErrorCode::invalid_schema:
      return "invalid_schema";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::unsatisfiable:
      return "unsatisfiable";
    case ErrorCode::syntax:
      return "syntax";
    case ErrorCode::limit:
      return "limit";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::bad_kind:
      return "bad_kind";
  }
  return "internal";
}

std::optional<CompileError> Budget::spent(std::size_t bytes_held) const {
  if (is_cancelled != nullptr && is_cancelled->load(std::memory_order_relaxed)) {
    return CompileError{.code = ErrorCode::cancelled, .message = "the compile was cancelled"};
  }
  if (bytes_held > compiled_bytes) {
    return CompileError{
        .code = ErrorCode::limit, .message = "the compiled grammar would be larger than the limit", .limit = "compiled_bytes"};
  }
  if (std::chrono::steady_clock::now() > deadline) {
    return CompileError{.code = ErrorCode::timeout, .message = "compiling took longer than the limit", .limit = "compile_ms"};
  }
  return std::nullopt;
}

}  // namespace deepinfer::grammar
