#include "sampling/noise.h"

namespace deepinfer::sampling {

NoiseBound::NoiseBound() : bounds_(std::size_t{1} << kIndexBits) {
  constexpr float kMargin = 1e-5F;  // more than the rounding errors of gumbel, which might break its monotony
  const std::uint32_t step = std::uint32_t{1} << (32 - kIndexBits);
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    bounds_[i] = gumbel(static_cast<std::uint32_t>(i) * step + (step - 1)) + kMargin;
  }
}

}  // namespace deepinfer::sampling
