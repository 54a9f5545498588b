// Exit codes of the deepinfer command and the way an error leaves it: one sentence on stderr.
#pragma once

#include <string_view>

#include "base/result.h"

namespace deepinfer::apps {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;          ///< the work failed
inline constexpr int kWrongArguments = 2;  ///< arguments or configuration

/// Prints "deepinfer: MESSAGE" on stderr.
void print_error(std::string_view message);

/// Prints the error; kWrongArguments for an invalid argument, kFailed for anything else.
[[nodiscard]] int report(const Error& error);

}  // namespace deepinfer::apps
