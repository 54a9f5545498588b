#include "weights/problems.h"

namespace deepinfer::weights {

void Problems::add(const Problems& other) {
  for (const std::string& sentence : other.sentences_) {
    add(sentence);
  }
  count_ += other.count_ - other.sentences_.size();
}

std::string Problems::to_text(std::string_view subject) const {
  std::string out(subject);
  if (count_ == 1) {
    return out + ": " + sentences_.front();
  }
  out += " has " + std::to_string(count_) + " problems:";
  for (const std::string& sentence : sentences_) {
    out += "\n  " + sentence;
  }
  if (count_ > sentences_.size()) {
    out += "\n  … and " + std::to_string(count_ - sentences_.size()) + " more";
  }
  return out;
}

}  // namespace deepinfer::weights
