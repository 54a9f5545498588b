// One line per finished request. Holds no prompt text and no key.
#pragma once

#include <string>

#include "server/http_server.h"

namespace deepinfer::server {

enum class LogFormat { text, json };

/// `id=… remote=… "POST /v1/chat/completions" status=200 bytes=93 ms=12.3 prompt=5 …`; `json` holds the same as one object.
[[nodiscard]] std::string access_line(const AccessRecord& record, LogFormat format);

}  // namespace deepinfer::server
