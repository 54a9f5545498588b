// The bounds of one compile: time, memory, and somebody who may call it off.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "grammar/compile_error.h"

namespace deepinfer::grammar {

struct Budget {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  const std::atomic<bool>* is_cancelled = nullptr;
  std::size_t compiled_bytes = 64U << 20;
  std::int32_t depth = 256;  ///< nesting of groups, or of the schema's JSON

  /// The error to stop with, if any; cheap enough to ask once per schema node or grammar rule.
  [[nodiscard]] std::optional<CompileError> spent(std::size_t bytes_held) const;
};

}  // namespace deepinfer::grammar
