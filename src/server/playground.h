// The playground page (web/index.html), compiled into the program.
#pragma once

#include <string_view>

namespace deepinfer::server {

[[nodiscard]] std::string_view playground_page();

}  // namespace deepinfer::server
