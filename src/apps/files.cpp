#include "apps/files.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <system_error>

namespace deepinfer::apps {

Result<std::string> read_file(const std::filesystem::path& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return fail(ErrorKind::not_found, "there is no file " + path.string());
  }
  if (!std::filesystem::is_regular_file(path, ignored) && !std::filesystem::is_fifo(path, ignored) &&
      !std::filesystem::is_character_file(path, ignored)) {
    return fail(ErrorKind::io, path.string() + " is no file");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return fail(ErrorKind::io, "cannot read " + path.string());
  }
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

Result<json::Value> read_json_file(const std::filesystem::path& path) {
  const Result<std::string> text = read_file(path);
  if (!text) {
    return std::unexpected(text.error());
  }
  Result<json::Value> value = json::parse(*text);
  if (!value) {
    return fail(ErrorKind::invalid_argument, path.string() + " is no JSON: " + value.error().message);
  }
  return value;
}

}  // namespace deepinfer::apps
