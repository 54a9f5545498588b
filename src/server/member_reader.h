// Optional members of a JSON body with their types and ranges. The first problem is kept as one sentence; later reads go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer::server {

class MemberReader {
 public:
  /// `body` may be no object: then nothing is found.
  explicit MemberReader(const json::Value& body) : body_(body) {}

  /// The member, nullptr when absent or null.
  [[nodiscard]] const json::Value* find(std::string_view name) const;

  [[nodiscard]] std::optional<bool> boolean(std::string_view name);
  [[nodiscard]] std::optional<std::string_view> text(std::string_view name);
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  [[nodiscard]] std::optional<double> number(std::string_view name, double least, double most);

  void refuse(std::string message);
  /// "" when nothing was wrong.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// The problem as an error, else success. The reader must have a problem for an error to be made.
  [[nodiscard]] Result<void> result() const;

 private:
  const json::Value& body_;
  std::string problem_;
};

/// "0.5" for 0.5, "-2" for -2: numbers in messages.
[[nodiscard]] std::string plain_number(double value);

}  // namespace deepinfer::server
