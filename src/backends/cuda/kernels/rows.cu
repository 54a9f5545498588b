// Residual streams, norms, quantisation and rotations: one block a row (docs/spec/model.md 4.3-4.6, 5.1-5.3).
#include <algorithm>

#include "backends/cuda/kernels/block_sums.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/row_vectors.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr std::int32_t kMostExpandThreads = 640;  // of the 65,536 registers of a multiprocessor each needs fewer than 100

constexpr int kEmbedThreads = 128;  // of the 640 that a row of the released model takes

/// A thread copies eight neighbouring columns to all streams.
__global__ void embed_kernel(EmbedParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const std::int32_t c = (blockIdx.y * kEmbedThreads + threadIdx.x) * kVector;
  if (c >= p.hidden) {
    return;
  }
  const bool is_image = p.is_image != nullptr && p.is_image[r] != 0;
  const bf16* row = is_image ? row_at(p.image_rows, r, p.hidden) : row_at(p.table, p.token[r], p.hidden);
  const uint4 values = *reinterpret_cast<const uint4*>(row + c);
  for (std::int32_t s = 0; s < p.streams; ++s) {
    *reinterpret_cast<uint4*>(row_at(p.h, r * p.streams + s, p.hidden) + c) = values;
  }
}

__global__ void rms_norm_vectors_kernel(RmsNormParams p) {
  __shared__ BlockSums<1> sums;
  const std::int32_t c = threadIdx.x * kVector;
  const bool inside = c < p.width;
  const uint4 weight = inside ? *reinterpret_cast<const uint4*>(p.weight + c) : uint4{};
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  Vector x{};
  if (inside) {
    x = load_vector(row_at(p.x, r, p.x_stride == 0 ? p.width : p.x_stride) + c);
  }
  norm_vector(x, weight, p.width, p.norm_eps, inside, sums);
  if (inside && p.y != nullptr) {
    store_vector(x, row_at(p.y, r, p.width) + c);
  }
  const VectorQ8 q8 = quantise_vector(x);
  if (inside && p.q8.codes != nullptr) {
    store_vector_q8(q8, c, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
  }
}

__global__ void quantise_vectors_kernel(QuantiseParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const std::int32_t c = (blockIdx.y * kBlockThreads + threadIdx.x) * kVector;
  const bool inside = c < p.width;
  Vector x{};
  if (inside) {
    x = load_vector(row_at(p.x, r, p.width) + c);
  }
  const VectorQ8 q8 = quantise_vector(x);
  if (inside) {
    store_vector_q8(q8, c, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
  }
}

/// Pair i of eight neighbouring bf16.
__device__ __forceinline__ void turn(const uint4& words, int i, double (&out)[2]) {
  const unsigned word = i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
  out[0] = static_cast<double>(__uint_as_float(word << 16));
  out[1] = static_cast<double>(__uint_as_float(word & 0xFFFF0000U));
}

/// A thread takes eight neighbouring columns of all streams at a time. Coefficients come first: they are turned to doubles once, and stores
/// to h would hold back loads after them; for the same reason the columns after the current ones are loaded before it stores.
template <int kStreams>
__global__ __launch_bounds__(kMostExpandThreads) void expand_kernel(ExpandParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  double comb[kStreams * kStreams];
  double post[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams * kStreams; ++i) {
    comb[i] = p.comb[r * kStreams * kStreams + i];
  }
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    post[k] = p.post[r * kStreams + k];
  }
  bf16* h = row_at(p.h, r, static_cast<std::int64_t>(kStreams) * p.hidden);
  uint4 old[kStreams];
  uint4 y{};
  const auto load = [&](std::int32_t c) {
    if (c < p.hidden) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        old[j] = *reinterpret_cast<const uint4*>(row_at(h, j, p.hidden) + c);
      }
      y = *reinterpret_cast<const uint4*>(row_at(p.y, r, p.hidden) + c);
    }
  };
  const auto step = static_cast<std::int32_t>(gridDim.y * blockDim.x) * kVector;
  auto c = static_cast<std::int32_t>(blockIdx.y * blockDim.x + threadIdx.x) * kVector;
  load(c);
  for (; c < p.hidden; c += step) {
    unsigned out[kStreams][kVector / 2];
#pragma unroll
    for (int i = 0; i < kVector / 2; ++i) {
      double values[kStreams][2];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        turn(old[j], i, values[j]);
      }
      double y_values[2];
      turn(y, i, y_values);
#pragma unroll
      for (int k = 0; k < kStreams; ++k) {
        double sums[2] = {post[k] * y_values[0], post[k] * y_values[1]};
#pragma unroll
        for (int j = 0; j < kStreams; ++j) {
          sums[0] = fma(comb[j * kStreams + k], values[j][0], sums[0]);  // products are exact
          sums[1] = fma(comb[j * kStreams + k], values[j][1], sums[1]);
        }
        out[k][i] = bf16_pair(static_cast<float>(sums[0]), static_cast<float>(sums[1]));
      }
    }
    load(c + step);
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      *reinterpret_cast<uint4*>(row_at(h, k, p.hidden) + c) = make_uint4(out[k][0], out[k][1], out[k][2], out[k][3]);
    }
  }
}

/// Any number of streams, one column a thread.
__global__ void expand_any_kernel(ExpandParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const std::int32_t c = blockIdx.y * kBlockThreads + threadIdx.x;
  if (c >= p.hidden) {
    return;
  }
  constexpr std::int32_t kMaxStreams = 8;
  bf16* h = row_at(p.h, r, static_cast<std::int64_t>(p.streams) * p.hidden);
  const float* comb = row_at(p.comb, r, p.streams * p.streams);
  double old[kMaxStreams];
#pragma unroll
  for (std::int32_t j = 0; j < kMaxStreams; ++j) {
    old[j] = j < p.streams ? to_float(row_at(h, j, p.hidden)[c]) : 0.0F;
  }
  const double y = to_float(row_at(p.y, r, p.hidden)[c]);
  for (std::int32_t k = 0; k < p.streams; ++k) {
    double sum = p.post[r * p.streams + k] * y;
#pragma unroll
    for (std::int32_t j = 0; j < kMaxStreams; ++j) {
      if (j < p.streams) {
        sum += comb[j * p.streams + k] * old[j];
      }
    }
    row_at(h, k, p.hidden)[c] = round_bf16(sum);
  }
}

__global__ void mean_streams_kernel(MeanStreamsParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const bf16* h = row_at(p.h, r, static_cast<std::int64_t>(p.streams) * p.hidden);
  for (std::int32_t c = threadIdx.x; c < p.hidden; c += kBlockThreads) {
    double sum = 0;
    for (std::int32_t s = 0; s < p.streams; ++s) {
      sum += to_float(row_at(h, s, p.hidden)[c]);
    }
    row_at(p.y, r, p.y_stride)[c] = round_bf16(sum / p.streams);
  }
}

__global__ void add_rows_kernel(AddRowsParams p) {
  begin_in_turn();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (c < p.width) {
    row_at(p.y, blockIdx.x, p.width)[c] += row_at(p.x, blockIdx.x, p.width)[c];
  }
}

__global__ void rms_norm_kernel(RmsNormParams p) {
  begin_in_turn();
  extern __shared__ bf16 y[];
  __shared__ BlockSums<1> sums;
  const std::int64_t r = blockIdx.x;
  norm_row(row_at(p.x, r, p.x_stride == 0 ? p.width : p.x_stride), p.weight, p.width, p.norm_eps, y, sums);
  for (std::int32_t c = threadIdx.x; c < p.width; c += kRowThreads) {
    if (p.y != nullptr) {
      row_at(p.y, r, p.width)[c] = y[c];
    }
    if (p.q8.codes != nullptr) {
      store_q8(y[c], c, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
    }
  }
}

__global__ void rope_table_kernel(RopeTableParams p) {
  begin_in_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i >= static_cast<std::int64_t>(p.num_rows) * p.half_dim) {
    return;
  }
  const float angle = __fmul_rn(static_cast<float>(p.position[i / p.half_dim]), p.frequency[i % p.half_dim]);
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  p.cos[i] = static_cast<float>(cosine);
  p.sin[i] = static_cast<float>(sine);
}

__global__ void rotate_kernel(RotateParams p) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const std::int32_t half = p.rope_dim / 2;
  for (std::int32_t i = threadIdx.x; i < p.heads * half; i += kBlockThreads) {
    bf16* head = row_at(p.x, r * p.heads + i / half, p.head_dim) + (p.head_dim - p.rope_dim);
    rotate_pair(head + 2 * (i % half), p.rope.cos[r * half + i % half], p.rope.sin[r * half + i % half]);
  }
}

}  // namespace

void embed(const EmbedParams& p, cudaStream_t stream) {
  constexpr int kColumns = kEmbedThreads * kVector;
  start(embed_kernel, {.grid = dim3(p.num_rows, (p.hidden + kColumns - 1) / kColumns), .block = kEmbedThreads}, stream, p);
}

void expand(const ExpandParams& p, cudaStream_t stream) {
  constexpr std::int32_t kFewRows = 132;  // spread over more blocks
  constexpr std::int32_t kSmallBlock = 128;
  if (p.streams == 4 && p.hidden % kVector == 0) {
    const std::int32_t pieces = p.hidden / kVector;
    if (p.num_rows <= kFewRows) {
      start(expand_kernel<4>, {.grid = dim3(p.num_rows, (pieces + kSmallBlock - 1) / kSmallBlock), .block = kSmallBlock}, stream, p);
    } else {  // two pieces a thread
      start(expand_kernel<4>, {.grid = dim3(p.num_rows), .block = std::min(kMostExpandThreads, (pieces + 63) / 64 * 32)}, stream, p);
    }
  } else {
    start(expand_any_kernel, {.grid = dim3(p.num_rows, (p.hidden + kBlockThreads - 1) / kBlockThreads), .block = kBlockThreads}, stream, p);
  }
}

void mean_streams(const MeanStreamsParams& p, cudaStream_t stream) {
  start(mean_streams_kernel, {.grid = dim3(p.num_rows), .block = kBlockThreads}, stream, p);
}

void add_rows(const AddRowsParams& p, cudaStream_t stream) {
  start(add_rows_kernel, {.grid = dim3(p.num_rows, (p.width + kBlockThreads - 1) / kBlockThreads), .block = kBlockThreads}, stream, p);
}

void rms_norm(const RmsNormParams& p, cudaStream_t stream) {
  if (fits_vectors(p.width) && p.x_stride % kVector == 0 && reinterpret_cast<std::uintptr_t>(p.x) % 16 == 0) {
    start(rms_norm_vectors_kernel, {.grid = dim3(p.num_rows), .block = vector_threads(p.width)}, stream, p);
  } else {
    start(rms_norm_kernel, {.grid = dim3(p.num_rows), .block = kRowThreads, .shared_bytes = p.width * sizeof(bf16)}, stream, p);
  }
}

void quantise(const QuantiseParams& p, cudaStream_t stream) {
  constexpr int kColumns = kBlockThreads * kVector;
  start(quantise_vectors_kernel, {.grid = dim3(p.num_rows, (p.width + kColumns - 1) / kColumns), .block = kBlockThreads}, stream, p);
}

void rope_table(const RopeTableParams& p, cudaStream_t stream) {
  const std::int64_t count = static_cast<std::int64_t>(p.num_rows) * p.half_dim;
  start(rope_table_kernel, {.grid = dim3((count + kBlockThreads - 1) / kBlockThreads), .block = kBlockThreads}, stream, p);
}

void rotate(const RotateParams& p, cudaStream_t stream) {
  start(rotate_kernel, {.grid = dim3(p.num_rows), .block = kBlockThreads}, stream, p);
}

}  // namespace deepinfer::cuda
