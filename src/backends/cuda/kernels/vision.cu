// Rotation, attention, activations and cells of the vision tower (docs/spec/model.md section 6). An image is encoded once, so these are
// plain kernels on the ordinary cores; products with weights are in gemm.cu.
#include <cmath>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

__global__ void rotate_halves_kernel(RotateHalvesParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const std::int32_t half = p.head_dim / 2;
  for (std::int32_t i = threadIdx.x; i < p.heads * half; i += kBlockThreads) {
    bf16* a = row_at(p.x, r, p.x_stride) + i / half * p.head_dim + i % half;
    bf16* b = a + half;
    const float cos = p.cos[r * half + i % half];
    const float sin = p.sin[r * half + i % half];
    const float x0 = to_float(*a);
    const float x1 = to_float(*b);
    *a = to_bf16(__fmaf_rn(x0, cos, -__fmul_rn(x1, sin)));
    *b = to_bf16(__fmaf_rn(x0, sin, __fmul_rn(x1, cos)));
  }
}

// --- attention: a warp takes a few queries of one head, a lane a key while scoring and a column while summing --------

constexpr int kWarps = 8;
constexpr int kWarpQueries = 4;
constexpr int kBlockQueries = kWarps * kWarpQueries;
constexpr int kTileKeys = 32;
constexpr int kMaxColumns = 8;  // of a lane: heads of at most 256 values

/// Shared memory: queries [kBlockQueries, head_dim] fp32, then a tile of keys and one of values [kTileKeys, head_dim + 1] fp32 (rows an
/// odd number of words apart, so that lanes that read a column meet no bank twice).
constexpr std::size_t attend_shared_bytes(std::int32_t head_dim) {
  return sizeof(float) * (static_cast<std::size_t>(kBlockQueries) * head_dim + 2 * static_cast<std::size_t>(kTileKeys) * (head_dim + 1));
}

__device__ __forceinline__ float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, offset));
  }
  return value;
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, offset);
  }
  return value;
}

__global__ __launch_bounds__(kWarps * 32) void attend_all_kernel(AttendAllParams p, float factor) {
  begin_in_turn();
  extern __shared__ float memory[];
  const std::int32_t d = p.head_dim;
  float* query = memory;
  float* keys = query + kBlockQueries * d;
  float* values = keys + kTileKeys * (d + 1);
  const int lane = threadIdx.x % 32;
  const int first_of_warp = threadIdx.x / 32 * kWarpQueries;
  const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kBlockQueries;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * d;

  for (std::int32_t i = threadIdx.x; i < kBlockQueries * d; i += kWarps * 32) {
    const std::int64_t r = first_query + i / d;
    query[i] = r < p.num_rows ? to_float(row_at(p.q, r, p.q_stride)[column + i % d]) : 0.0F;
  }
  float peak[kWarpQueries];
  float total[kWarpQueries];
  float sum[kWarpQueries][kMaxColumns] = {};
  for (int q = 0; q < kWarpQueries; ++q) {
    peak[q] = -INFINITY;
    total[q] = 0;
  }
  for (std::int32_t first = 0; first < p.num_keys; first += kTileKeys) {
    __syncthreads();  // queries are there; the tile before is done with
    for (std::int32_t i = threadIdx.x; i < kTileKeys * d; i += kWarps * 32) {
      const std::int64_t j = min(first + i / d, p.num_keys - 1);
      keys[i / d * (d + 1) + i % d] = to_float(row_at(p.k, j, p.kv_stride)[column + i % d]);
      values[i / d * (d + 1) + i % d] = to_float(row_at(p.v, j, p.kv_stride)[column + i % d]);
    }
    __syncthreads();
    float score[kWarpQueries] = {};
    for (std::int32_t i = 0; i < d; ++i) {
      const float key = keys[lane * (d + 1) + i];
#pragma unroll
      for (int q = 0; q < kWarpQueries; ++q) {
        score[q] = fmaf(query[(first_of_warp + q) * d + i], key, score[q]);
      }
    }
#pragma unroll
    for (int q = 0; q < kWarpQueries; ++q) {
      score[q] = first + lane < p.num_keys ? score[q] * factor : -INFINITY;
      const float now = fmaxf(peak[q], warp_max(score[q]));
      const float shrink = expf(peak[q] - now);
      score[q] = expf(score[q] - now);
      total[q] = total[q] * shrink + warp_sum(score[q]);
      peak[q] = now;
#pragma unroll
      for (int c = 0; c < kMaxColumns; ++c) {
        sum[q][c] *= shrink;
      }
    }
    const int count = min(kTileKeys, p.num_keys - first);
    for (int j = 0; j < count; ++j) {
      float weight[kWarpQueries];
#pragma unroll
      for (int q = 0; q < kWarpQueries; ++q) {
        weight[q] = __shfl_sync(kWholeWarp, score[q], j);
      }
#pragma unroll
      for (int c = 0; c < kMaxColumns; ++c) {
        if (c * 32 + lane < d) {
          const float value = values[j * (d + 1) + c * 32 + lane];
#pragma unroll
          for (int q = 0; q < kWarpQueries; ++q) {
            sum[q][c] = fmaf(weight[q], value, sum[q][c]);
          }
        }
      }
    }
  }
  for (int q = 0; q < kWarpQueries; ++q) {
    const std::int64_t r = first_query + first_of_warp + q;
    for (int c = 0; c < kMaxColumns && r < p.num_rows; ++c) {
      if (c * 32 + lane < d) {
        row_at(p.o, r, static_cast<std::int64_t>(p.heads) * d)[column + c * 32 + lane] = to_bf16(sum[q][c] / total[q]);
      }
    }
  }
}

// --- values one by one ---------------------------------------------------------------------------------------------

__device__ __forceinline__ std::int64_t own_value() { return static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; }

__global__ void add_kernel(AddParams p, std::int64_t count) {
  begin_in_turn();
  const std::int64_t i = own_value();
  if (i < count) {
    p.x[i] = to_bf16(to_float(p.x[i]) + to_float(p.y[i]));
  }
}

__global__ void silu_product_kernel(SiluProductParams p, std::int64_t count) {
  begin_in_turn();
  const std::int64_t i = own_value();
  if (i < count) {
    const bf16* gate = row_at(p.gate_up, i / p.width, 2 * static_cast<std::int64_t>(p.width)) + i % p.width;
    const float g = to_float(*gate);
    p.y[i] = to_bf16(g / (1.0F + expf(-g)) * to_float(gate[p.width]));
  }
}

__global__ void gelu_kernel(GeluParams p, std::int64_t count) {
  begin_in_turn();
  const std::int64_t i = own_value();
  if (i < count) {
    const double value = to_float(p.x[i]);
    p.x[i] = round_bf16(0.5 * value * erfc(-value * 0.70710678118654752440));
  }
}

__global__ void gather_cells_kernel(GatherCellsParams p, std::int64_t count) {
  begin_in_turn();
  const std::int64_t i = own_value();
  if (i >= count) {
    return;
  }
  const std::int32_t columns = (p.grid_columns + p.side - 1) / p.side;
  const std::int64_t area = static_cast<std::int64_t>(p.side) * p.side;
  const std::int64_t cell = i / (p.width * area);
  const std::int64_t c = i % (p.width * area) / area;
  const std::int64_t y = cell / columns * p.side + i % area / p.side;
  const std::int64_t x = cell % columns * p.side + i % p.side;
  const bool is_inside = y < p.grid_rows && x < p.grid_columns;
  p.y[i] = is_inside ? row_at(p.x, y * p.grid_columns + x, p.width)[c] : bf16{};
}

/// One thread a value.
template <class Params>
void launch_values(void (*kernel)(Params, std::int64_t), const Params& p, std::int64_t width, cudaStream_t stream) {
  const std::int64_t count = p.num_rows * width;
  start(kernel, {.grid = dim3(static_cast<unsigned>((count + kBlockThreads - 1) / kBlockThreads)), .block = kBlockThreads}, stream, p, count);
}

}  // namespace

void rotate_halves(const RotateHalvesParams& p, cudaStream_t stream) {
  start(rotate_halves_kernel, {.grid = dim3(p.num_rows), .block = kBlockThreads}, stream, p);
}

void attend_all(const AttendAllParams& p, cudaStream_t stream) {
  start(attend_all_kernel,
        {.grid = dim3((p.num_rows + kBlockQueries - 1) / kBlockQueries, p.heads),
         .block = kWarps * 32,
         .shared_bytes = attend_shared_bytes(p.head_dim)},
        stream, p, static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim))));
}

void add(const AddParams& p, cudaStream_t stream) { launch_values(add_kernel, p, p.width, stream); }
void silu_product(const SiluProductParams& p, cudaStream_t stream) { launch_values(silu_product_kernel, p, p.width, stream); }
void gelu(const GeluParams& p, cudaStream_t stream) { launch_values(gelu_kernel, p, p.width, stream); }

void gather_cells(const GatherCellsParams& p, cudaStream_t stream) {
  launch_values(gather_cells_kernel, p, static_cast<std::int64_t>(p.width) * p.side * p.side, stream);
}

}  // namespace deepinfer::cuda
