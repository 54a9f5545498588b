// How reports of this folder print numbers and tables. Plain text, columns aligned with blanks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::model {

/// "510,286,023,000"
[[nodiscard]] std::string grouped(std::size_t number);
/// "510.3 GB": decimal units, one digit after the point.
[[nodiscard]] std::string short_bytes(std::size_t bytes);

/// Rows of cells under each other.
class TextTable {
 public:
  /// One letter per column: l aligns left, r right.
  explicit TextTable(std::string_view alignment) : alignment_(alignment) {}

  /// At most as many cells as there are columns.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Each line starts with two blanks and ends with a line feed.
  [[nodiscard]] std::string to_text() const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace deepinfer::model
