#include "model/deepseek_v41/report_text.h"

#include <algorithm>
#include <cstdio>

namespace deepinfer::model {

std::string grouped(std::size_t number) {
  std::string out = std::to_string(number);
  for (std::size_t at = out.size(); at > 3;) {
    at -= 3;
    out.insert(at, 1, ',');
  }
  return out;
}

std::string short_bytes(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string TextTable::to_text() const {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - row[column].size(), ' ');
      line += "  ";
      line += alignment_[column] == 'l' ? row[column] + padding : padding + row[column];
    }
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace deepinfer::model
