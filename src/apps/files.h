// Small files read whole, with errors that name the file.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer::apps {

/// "-" reads stdin. Errors: not_found, io.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);
/// Errors: those of read_file, and invalid_argument when the text is no JSON.
[[nodiscard]] Result<json::Value> read_json_file(const std::filesystem::path& path);

}  // namespace deepinfer::apps
