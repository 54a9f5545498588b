// Residual streams, norms, quantisation and rotations: one block a row (docs/spec/model.md 4.3-4.6, 5.1-5.3).
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

__global__ void embed_kernel(EmbedParams p) {
  const std::int64_t r = blockIdx.x;
  const bool is_image = p.is_image != nullptr && p.is_image[r] != 0;
  const bf16* row = is_image ? row_at(p.image_rows, r, p.hidden) : row_at(p.table, p.token[r], p.hidden);
  for (std::int32_t i = threadIdx.x; i < p.streams * p.hidden; i += blockDim.x) {
    row_at(p.h, r, static_cast<std::int64_t>(p.streams) * p.hidden)[i] = row[i % p.hidden];
  }
}

__global__ void collapse_norm_kernel(CollapseNormParams p) {
  extern __shared__ bf16 x[];
  __shared__ double sums[kRowWarps];
  const std::int64_t r = blockIdx.x;
  const bf16* h = row_at(p.h, r, static_cast<std::int64_t>(p.streams) * p.hidden);
  for (std::int32_t c = threadIdx.x; c < p.hidden; c += kRowThreads) {
    double sum = 0;
    for (std::int32_t s = 0; s < p.streams; ++s) {
      sum += static_cast<double>(p.pre[r * p.streams + s]) * to_float(row_at(h, s, p.hidden)[c]);
    }
    x[c] = round_bf16(sum);
    if (p.x != nullptr) {
      row_at(p.x, r, p.hidden)[c] = x[c];
    }
  }
  __syncthreads();
  norm_row(x, p.weight, p.hidden, p.norm_eps, x, sums);
  for (std::int32_t c = threadIdx.x; c < p.hidden; c += kRowThreads) {
    row_at(p.y, r, p.hidden)[c] = x[c];
    if (p.q8.codes != nullptr) {
      store_q8(x[c], c, row_at(p.q8.codes, r, p.hidden), row_at(p.q8.scales, r, p.hidden / kQ8Group));
    }
  }
}

__global__ void expand_kernel(ExpandParams p) {
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
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (c < p.width) {
    row_at(p.y, blockIdx.x, p.width)[c] += row_at(p.x, blockIdx.x, p.width)[c];
  }
}

__global__ void rms_norm_kernel(RmsNormParams p) {
  extern __shared__ bf16 y[];
  __shared__ double sums[kRowWarps];
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

__global__ void quantise_kernel(QuantiseParams p) {
  const std::int64_t r = blockIdx.x;
  const std::int32_t c = blockIdx.y * kBlockThreads + threadIdx.x;
  if (c < p.width) {  // whole groups
    store_q8(row_at(p.x, r, p.width)[c], c, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
  }
}

__global__ void rope_table_kernel(RopeTableParams p) {
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
  const std::int64_t r = blockIdx.x;
  const std::int32_t half = p.rope_dim / 2;
  for (std::int32_t i = threadIdx.x; i < p.heads * half; i += kBlockThreads) {
    bf16* head = row_at(p.x, r * p.heads + i / half, p.head_dim) + (p.head_dim - p.rope_dim);
    rotate_pair(head + 2 * (i % half), p.rope.cos[r * half + i % half], p.rope.sin[r * half + i % half]);
  }
}

}  // namespace

void embed(const EmbedParams& p, cudaStream_t stream) { embed_kernel<<<p.num_rows, kBlockThreads, 0, stream>>>(p); }

void collapse_norm(const CollapseNormParams& p, cudaStream_t stream) {
  collapse_norm_kernel<<<p.num_rows, kRowThreads, p.hidden * sizeof(bf16), stream>>>(p);
}

void expand(const ExpandParams& p, cudaStream_t stream) {
  const dim3 grid(p.num_rows, (p.hidden + kBlockThreads - 1) / kBlockThreads);
  expand_kernel<<<grid, kBlockThreads, 0, stream>>>(p);
}

void mean_streams(const MeanStreamsParams& p, cudaStream_t stream) { mean_streams_kernel<<<p.num_rows, kBlockThreads, 0, stream>>>(p); }

void add_rows(const AddRowsParams& p, cudaStream_t stream) {
  const dim3 grid(p.num_rows, (p.width + kBlockThreads - 1) / kBlockThreads);
  add_rows_kernel<<<grid, kBlockThreads, 0, stream>>>(p);
}

void rms_norm(const RmsNormParams& p, cudaStream_t stream) {
  rms_norm_kernel<<<p.num_rows, kRowThreads, p.width * sizeof(bf16), stream>>>(p);
}

void quantise(const QuantiseParams& p, cudaStream_t stream) {
  quantise_kernel<<<dim3(p.num_rows, (p.width + kBlockThreads - 1) / kBlockThreads), kBlockThreads, 0, stream>>>(p);
}

void rope_table(const RopeTableParams& p, cudaStream_t stream) {
  const std::int64_t count = static_cast<std::int64_t>(p.num_rows) * p.half_dim;
  rope_table_kernel<<<(count + kBlockThreads - 1) / kBlockThreads, kBlockThreads, 0, stream>>>(p);
}

void rotate(const RotateParams& p, cudaStream_t stream) { rotate_kernel<<<p.num_rows, kBlockThreads, 0, stream>>>(p); }

}  // namespace deepinfer::cuda
