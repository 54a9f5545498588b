#include "recipe/test_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string_view>

namespace deepinfer::recipe::testing {

std::string read_text_file(const std::filesystem::path& path) {
  std::string out;
  gzFile file = gzopen(path.c_str(), "rb");  // reads plain files as they are
  if (file == nullptr) {
    return out;
  }
  char buffer[1 << 16];
  for (int count = gzread(file, buffer, sizeof(buffer)); count > 0; count = gzread(file, buffer, sizeof(buffer))) {
    out.append(buffer, static_cast<std::size_t>(count));
  }
  gzclose(file);
  return out;
}

std::vector<json::Value> read_json_lines(const std::filesystem::path& path) {
  constexpr json::ParseLimits kLimits{.max_depth = 512};
  const std::string text = read_text_file(path);
  EXPECT_FALSE(text.empty()) << path << " is missing or empty";
  std::vector<json::Value> out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    Result<json::Value> value = json::parse(rest.substr(0, end), kLimits);
    if (value) {
      out.push_back(std::move(*value));
    } else {
      ADD_FAILURE() << path << ", line " << out.size() + 1 << ": " << value.error().message;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

std::filesystem::path recipe_data(std::string_view name) { return std::filesystem::path(DEEPINFER_TEST_DATA) / "recipe" / name; }

}  // namespace deepinfer::recipe::testing
