// What multiplies with weights on an x86 processor. Not here: the products (fast/quantised-inl.h, fast/bf16_products-inl.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer::cpu {

/// All give the same bits. Ascending: where one is there, those before it are too.
enum class ProductUnit : std::uint8_t {
  vector,  ///< multiply-adds of any instruction set
  pairs,   ///< AVX512_BF16 (fast/pairs.h)
  matrix,  ///< AMX (fast/amx.h)
};

[[nodiscard]] constexpr std::string_view name_of(ProductUnit unit) {
  return unit == ProductUnit::vector ? "vector" : (unit == ProductUnit::pairs ? "pairs" : "matrix");
}

}  // namespace deepinfer::cpu
