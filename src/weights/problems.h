// A list of everything that is wrong with a file, so that one run shows all of it instead of the first finding.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::weights {

class Problems {
 public:
  /// A person mends a checkpoint by its first few problems; thousands of the same kind would hide them.
  static constexpr std::size_t kMaxListed = 20;

  void add(std::string sentence) {
    ++count_;
    if (sentences_.size() < kMaxListed) {
      sentences_.push_back(std::move(sentence));
    }
  }
  void add(const Problems& other);

  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// All problems added, also those beyond the first kMaxListed, whose text is not kept.
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] const std::vector<std::string>& sentences() const { return sentences_; }

  /// "SUBJECT has 3 problems:\n  …\n  …": the text of an error message.
  [[nodiscard]] std::string to_text(std::string_view subject) const;
  [[nodiscard]] std::unexpected<Error> to_failure(ErrorKind kind, std::string_view subject) const { return fail(kind, to_text(subject)); }

 private:
  std::vector<std::string> sentences_;
  std::size_t count_ = 0;
};

}  // namespace deepinfer::weights
