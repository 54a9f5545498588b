// Linears (docs/spec/model.md 4.4): Q8 activations with FP8 or FP4 weights, bf16 with bf16.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

/// For widths that no vector divides: a warp an output.
__global__ void any_width_bf16_kernel(LinearBf16Params p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.y;
  const std::int32_t n = blockIdx.x * (kBlockThreads / 32) + threadIdx.x / 32;
  if (n >= p.n) {
    return;
  }
  const bf16* x = row_at(p.x, p.row_index != nullptr ? p.row_index[r] : r, p.k);
  float sum = 0;
  for (std::int32_t k = threadIdx.x % 32; k < p.k; k += 32) {
    sum = fmaf(to_float(x[k]), to_float(row_at(p.weight.values, n, p.k)[k]), sum);
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

namespace {

constexpr int kVectorValues = 32;  // of bf16, of the four lanes of a step

ColumnTiles tiles_of(const LinearQ8Params& p) { return tiles_for(kind_of(p.weight.format), p.groups, p.n, p.k, p.num_rows); }
ColumnTiles tiles_of(const LinearBf16Params& p) { return tiles_for(WeightKind::bf16, 1, p.n, p.k, p.num_rows); }

/// Values of a group's activations.
template <class Params>
std::int64_t group_values(const Params& p) {
  const ColumnTiles tiles = tiles_of(p);
  return tiles.is_packed ? tiles.values(p.k) : tiles.reads_plain() ? 0 : static_cast<std::int64_t>(p.num_rows) * p.k;
}

}  // namespace

std::size_t linear_scratch(const LinearQ8Params& p) { return static_cast<std::size_t>(group_values(p) * p.groups); }
std::size_t linear_scratch(const LinearBf16Params& p) { return tiles_of(p).is_packed ? static_cast<std::size_t>(group_values(p)) : 0; }

void linear_q8(const LinearQ8Params& p, bf16* scratch, cudaStream_t stream) {
  const WeightKind kind = kind_of(p.weight.format);
  const ColumnTiles tiles = tiles_of(p);
  if (!tiles.reads_plain()) {
    pack_q8({.kind = kind, .k = p.k, .groups = p.groups, .columns = tiles, .num_columns = p.num_rows, .out = scratch}, p.x, stream);
  }
  const GemmParams gemm{.n = p.n,
                        .k = p.k,
                        .codes = p.weight.codes,
                        .scales = p.weight.scales,
                        .in_units = lies_in_units(p.weight.format, std::int64_t{p.groups} * p.n, p.k),
                        .num_columns = p.num_rows,
                        .x = scratch,
                        .x_q8 = p.x,
                        .x_stride = static_cast<std::int64_t>(p.groups) * p.k,
                        .x_group = tiles.is_packed ? tiles.values(p.k) : p.k,
                        .y_bf16 = p.y,
                        .y_stride = static_cast<std::int64_t>(p.groups) * p.n};
  launch_gemm(kind, gemm, tiles, p.groups, stream);
}

void linear_bf16(const LinearBf16Params& p, bf16* scratch, cudaStream_t stream) {
  if (p.k % kVectorValues != 0) {
    start(any_width_bf16_kernel, {.grid = dim3((p.n + 7) / 8, p.num_rows), .block = kBlockThreads}, stream, p);
    return;
  }
  const ColumnTiles tiles = tiles_of(p);
  if (tiles.is_packed) {
    pack_bf16({.kind = WeightKind::bf16, .k = p.k, .columns = tiles, .num_columns = p.num_rows, .x_row = p.row_index, .out = scratch}, p.x,
              stream);
  }
  const GemmParams gemm{.n = p.n,
                        .k = p.k,
                        .codes = reinterpret_cast<const std::uint8_t*>(p.weight.values),
                        .num_columns = p.num_rows,
                        .x = tiles.is_packed ? scratch : p.x,
                        .x_q8 = {},
                        .x_row = p.row_index,
                        .x_stride = p.k,
                        .y_bf16 = p.y_bf16,
                        .y_f32 = p.y_f32,
                        .y_stride = p.n,
                        .bias = p.bias};
  launch_gemm(WeightKind::bf16, gemm, tiles, 1, stream);
}

}  // namespace deepinfer::cuda
