// What a tensor is called and what it looks like, without its bytes.
#pragma once

#include <cstddef>
#include <string>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace deepinfer::weights {

struct TensorDescription {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;

  [[nodiscard]] std::size_t size_bytes() const { return static_cast<std::size_t>(shape.num_elements()) * size_of(dtype); }
  /// "F8_E4M3 [1280, 5120]"
  [[nodiscard]] std::string form() const { return std::string(name_of(dtype)) + " " + shape.to_string(); }
};

}  // namespace deepinfer::weights
