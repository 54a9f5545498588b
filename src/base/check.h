// check(): a broken invariant ends the process with the sentence that was broken, in release builds too.
// Not for anything a client, file or peer can cause: that is a Result (base/result.h).
#pragma once

#include <source_location>
#include <string_view>

namespace deepinfer {

/// Prints "file:line: broken invariant: …" to stderr and aborts.
[[noreturn]] void broken_invariant(std::string_view what_must_hold, std::source_location where);

/// Aborts with `what_must_hold` unless `condition`. The sentence states the rule, not the failure.
inline void check(bool condition, std::string_view what_must_hold, std::source_location where = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    broken_invariant(what_must_hold, where);
  }
}

}  // namespace deepinfer
