// Where log lines go: stderr, with time and level.
#pragma once

#include <string>

#include "base/log.h"

namespace deepinfer::apps {

/// `level`: debug, info, warning, error or off (as --log-level). Callable from any thread.
[[nodiscard]] Log make_log(const std::string& level);

/// Lines as they are, without time and level: the access log.
[[nodiscard]] Log make_plain_log();

}  // namespace deepinfer::apps
