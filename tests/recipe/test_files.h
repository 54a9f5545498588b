// Reading of test data: plain and gzip files, and files with one JSON object per line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace deepinfer::recipe::testing {

/// The text of a file, unpacked when its name ends in .gz; "" when it does not exist.
std::string read_text_file(const std::filesystem::path& path);

/// The values of a file with one JSON text per line. A line that is not JSON, or a missing file, fails the running test.
std::vector<json::Value> read_json_lines(const std::filesystem::path& path);

/// A file of tests/data/recipe.
std::filesystem::path recipe_data(std::string_view name);

}  // namespace deepinfer::recipe::testing
