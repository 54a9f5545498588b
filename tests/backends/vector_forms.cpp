#include "backends/vector_forms.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/vector_forms.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/codecs-inl.h"
#include "backends/cpu/fast/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::test::HWY_NAMESPACE {
namespace kernels = cpu::HWY_NAMESPACE;

void decode_q8_pairs(const std::uint8_t* codes, const std::uint8_t* scale, float* out) { kernels::decode_q8_pairs(codes, scale, 32, out); }
void decode_q8_plain(const std::uint8_t* codes, const std::uint8_t* scale, float* out) { kernels::decode_q8_plain(codes, scale, 32, out); }
void decode_e2m1_pairs(const std::uint8_t* packed, float* out) { kernels::store_pairs(kernels::e2m1_pairs(packed), out); }
void decode_e2m1_plain(const std::uint8_t* packed, float* out) {
  kernels::decode_e2m1_plain(
      packed, 32, [](std::int32_t) { return 1.0F; }, out);
}
void round_to_bf16(const float* x, bf16* out) { kernels::store16(kernels::load16(x), out); }

void evaluate(Function function, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i += kernels::kLanes) {
    const kernels::VF x = kernels::load(values.data() + i);
    kernels::VF y = x;
    if (function == Function::exp) {
      y = kernels::exp(x);
    } else if (function == Function::sigmoid) {
      y = kernels::sigmoid(x);
    } else {
      y = kernels::softplus(x);
    }
    kernels::store(y, values.data() + i);
  }
}

VectorForms make_vector_forms() {
  return {kernels::quantise_q8_row,
          kernels::quantise_q4_index_row,
          kernels::quantise_q4_kv_row,
          decode_q8_pairs,
          decode_q8_plain,
          decode_e2m1_pairs,
          decode_e2m1_plain,
          round_to_bf16,
          evaluate};
}

}  // namespace deepinfer::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::test {
HWY_EXPORT(make_vector_forms);
VectorForms vector_forms() { return HWY_DYNAMIC_DISPATCH(make_vector_forms)(); }
}  // namespace deepinfer::test
#endif
