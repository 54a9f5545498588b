#include "tensor/tensor.h"

#include "base/check.h"

namespace deepinfer {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  for (const std::int64_t extent : extents) {
    check(append(extent), "a tensor has at most four axes");
  }
}

std::int64_t Shape::num_elements() const {
  std::int64_t out = 1;
  for (std::size_t axis = 0; axis < rank_; ++axis) {
    out *= extents_[axis];
  }
  return out;
}

bool Shape::append(std::int64_t extent) {
  if (rank_ == kMaxRank) {
    return false;
  }
  extents_[rank_++] = extent;
  return true;
}

std::string Shape::to_string() const {
  std::string out = "[";
  for (std::size_t axis = 0; axis < rank_; ++axis) {
    out += (axis > 0 ? ", " : "") + std::to_string(extents_[axis]);
  }
  return out + "]";
}

bool operator==(const Shape& a, const Shape& b) {
  if (a.rank_ != b.rank_) {
    return false;
  }
  for (std::size_t axis = 0; axis < a.rank_; ++axis) {
    if (a.extents_[axis] != b.extents_[axis]) {
      return false;
    }
  }
  return true;
}

}  // namespace deepinfer
