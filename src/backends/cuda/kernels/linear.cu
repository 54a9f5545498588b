// Linears (docs/spec/model.md 4.4): Q8 activations with FP8 or FP4 weights, bf16 with bf16.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

/// One thread a value.
__global__ void decode_q8_kernel(Q8Rows q8, std::int64_t count, std::int32_t width, WeightKind kind, int codes, bf16* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const std::int32_t k = static_cast<std::int32_t>(i % width);
  const float value = e4m3_to_float(q8.codes[i]) * ue8m0_to_float(q8.scales[i / kQ8Group]);
  out[i - k + x_place(kind, codes, k)] = to_bf16(value);
}

/// All rows as columns, in tiles.
void launch_dense(WeightKind kind, const GemmParams& p, int groups, cudaStream_t stream) {
  const int columns = tile_columns_for(p.num_columns);
  launch_gemm(kind, p, columns, (p.num_columns + columns - 1) / columns, groups, stream);
}

/// For widths that no vector divides: a warp an output.
__global__ void any_width_bf16_kernel(LinearBf16Params p) {
  const std::int64_t r = blockIdx.y;
  const std::int32_t n = blockIdx.x * (kBlockThreads / 32) + threadIdx.x / 32;
  if (n >= p.n) {
    return;
  }
  const bf16* x = row_at(p.x, p.row_index != nullptr ? p.row_index[r] : r, p.k);
  float sum = 0;
  for (std::int32_t k = threadIdx.x % 32; k < p.k; k += 32) {
    sum = fmaf(to_float(x[k]), to_float(row_at(p.weight, n, p.k)[k]), sum);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, offset);
  }
  if (threadIdx.x % 32 == 0) {
    sum += p.bias != nullptr ? to_float(p.bias[n]) : 0.0F;
    if (p.y_f32 != nullptr) {
      p.y_f32[r * p.n + n] = sum;
    } else {
      p.y_bf16[r * p.n + n] = to_bf16(sum);
    }
  }
}

}  // namespace

void decode_q8(const Q8Rows& q8, std::int64_t rows, std::int32_t width, WeightFormat format, bf16* out, cudaStream_t stream) {
  const WeightKind kind = kind_of(format);
  const std::int64_t count = rows * width;
  decode_q8_kernel<<<(count + kBlockThreads - 1) / kBlockThreads, kBlockThreads, 0, stream>>>(
      q8, count, width, kind, codes_of(kind, vector_bytes(kind, width)), out);
}

void linear_q8(const LinearQ8Params& p, const bf16* x, cudaStream_t stream) {
  const GemmParams gemm{.n = p.n,
                        .k = p.k,
                        .codes = p.weight.codes,
                        .scales = p.weight.scales,
                        .num_columns = p.num_rows,
                        .x = x,
                        .x_stride = static_cast<std::int64_t>(p.groups) * p.k,
                        .y_bf16 = p.y,
                        .y_stride = static_cast<std::int64_t>(p.groups) * p.n};
  launch_dense(kind_of(p.weight.format), gemm, p.groups, stream);
}

void linear_bf16(const LinearBf16Params& p, cudaStream_t stream) {
  constexpr int kVectorCodes = 32;
  if (p.k % kVectorCodes != 0) {
    any_width_bf16_kernel<<<dim3((p.n + 7) / 8, p.num_rows), kBlockThreads, 0, stream>>>(p);
    return;
  }
  const GemmParams gemm{.n = p.n,
                        .k = p.k,
                        .codes = reinterpret_cast<const std::uint8_t*>(p.weight),
                        .num_columns = p.num_rows,
                        .x_row = p.row_index,
                        .x = p.x,
                        .x_stride = p.k,
                        .y_bf16 = p.y_bf16,
                        .y_f32 = p.y_f32,
                        .y_stride = p.n,
                        .bias = p.bias};
  launch_dense(WeightKind::bf16, gemm, 1, stream);
}

}  // namespace deepinfer::cuda
