// What the kernels of products share: operands, results and the sizes of their tiles. Not here: the products (quantised-inl.h,
// bf16_products-inl.h).
#if defined(DEEPINFER_CPU_FAST_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_GEMM_INL_H_
#undef DEEPINFER_CPU_FAST_GEMM_INL_H_
#else
#define DEEPINFER_CPU_FAST_GEMM_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/fast/columns-inl.h"
#include "backends/cpu/fast/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kStripDepth = 256;                      ///< k values of one strip of decoded columns
inline constexpr std::int32_t kTileColumns = kLanes == 16 ? 32 : 16;  ///< a strip of 256 k values: 16 or 32 KB, in the first cache
inline constexpr std::int32_t kTileVectors = kTileColumns / kLanes;   ///< registers of one row of a tile
inline constexpr std::int32_t kTileSums = kLanes == 16 ? 24 : 12;     ///< registers for sums; the others hold operands
inline constexpr std::int32_t kTileRows = kTileSums / (2 * kTileVectors) > 0 ? kTileSums / (2 * kTileVectors) : 1;

/// Rows of fp32 operands in pair order, [rows, k] with `stride` floats from row to row.
struct Operand {
  const float* data;
  std::int64_t stride;
  std::int32_t rows;
  std::int32_t k;

  [[nodiscard]] const float* at(std::int32_t row) const { return data + row * stride; }
};

/// Where results go, [rows, columns] fp32 or bf16.
template <class T>
struct Output {
  T* data;
  std::int64_t stride;

  [[nodiscard]] T* at(std::int32_t row, std::int32_t column) const { return data + row * stride + column; }
};

HWY_INLINE void put(float value, float* out) { *out = value; }
HWY_INLINE void put(float value, bf16* out) { *out = to_bf16(value); }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
