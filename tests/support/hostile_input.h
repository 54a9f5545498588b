// Input made to hurt and what it costs, for the tests of rooms that take grammars from clients.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

namespace deepinfer::test {

inline std::string repeated(std::string_view piece, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += piece;
  }
  return out;
}

/// A JSON Schema whose definitions each refer to the next one twice, below `combine`: 2^40 ways, forty schemas.
inline std::string doubling_schema(std::string_view combine) {
  std::string out = R"({"$defs":{"n0":{"type":"integer"})";
  for (int i = 1; i < 40; ++i) {
    const std::string before = R"({"$ref":"#/$defs/n)" + std::to_string(i - 1) + R"("})";
    out += R"(,"n)" + std::to_string(i) + R"(":{")" + std::string(combine) + R"(":[{"properties":{"a":)" + before +
           R"(}},{"properties":{"b":)" + before + "}}]}";
  }
  return out + R"(},"$ref":"#/$defs/n39"})";
}

/// Memory of this process that is in use.
inline std::size_t resident_bytes() {
  constexpr std::size_t kPage = 4096;
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * kPage;
}

}  // namespace deepinfer::test
