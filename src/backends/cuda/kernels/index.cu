// Index scores, candidate blocks and the list of the best compressed rows (docs/spec/model.md 5.4 "Index list").
// Codes times two are small integers, so products inside a scale block are exact; the rest of a score is summed in double precision.
#include <algorithm>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

constexpr int kScoreThreads = 128;
constexpr int kSelectThreads = 1024;
constexpr int kMaxScaleBlocks = 8;  // index_dim <= 256

__host__ __device__ std::int32_t scale_blocks(const IndexSelectParams& p) { return p.index_dim / kQ4IndexGroup; }

/// One block a head of a row: rotated, quantised, as integers.
__global__ void make_queries_kernel(IndexSelectParams p, std::int64_t first_row, float factor, IndexQueries out) {
  extern __shared__ bf16 x[];
  const std::int64_t local = blockIdx.x / p.heads;
  const std::int64_t r = first_row + local;
  const std::int32_t head = static_cast<std::int32_t>(blockIdx.x % p.heads);
  for (std::int32_t c = threadIdx.x; c < p.index_dim; c += blockDim.x) {
    x[c] = row_at(p.q, r * p.heads + head, p.index_dim)[c];
  }
  __syncthreads();
  rotate_row(x, p.index_dim, p.rope_dim, p.rope, r);
  const std::int64_t query = local * p.heads + head;
  for (std::int32_t c = threadIdx.x; c < p.index_dim; c += blockDim.x) {
    const float value = to_float(x[c]);
    const float scale = ue8m0_to_float(power_of_two_scale(group_amax(value, kQ4IndexGroup, kQ4IndexFloor), kE2M1Max));
    out.codes[query * p.index_dim + c] = static_cast<std::int8_t>(2.0F * e2m1_value(float_to_e2m1(value * (1.0F / scale))));
    if (c % kQ4IndexGroup == 0) {
      out.scales[query * scale_blocks(p) + c / kQ4IndexGroup] = scale;
    }
  }
  if (threadIdx.x == 0) {
    out.head_weight[query] = to_float(to_bf16(__fmul_rn(to_float(p.head_weight[r * p.heads + head]), factor)));
  }
}

/// Four E2M1 codes (low 16 bits) to four bytes: value times two.
__device__ __forceinline__ int four_codes(unsigned codes) {
  const unsigned selector = codes & 0x7777U;
  const unsigned positive = __byte_perm(0x03020100U, 0x0C080604U, selector);
  const unsigned negative = __byte_perm(0xFDFEFF00U, 0xF4F8FAFCU, selector);
  const unsigned mask = __byte_perm(0x0000FF00U, 0, codes >> 3 & 0x1111U);
  return static_cast<int>((positive & ~mask) | (negative & mask));
}

/// Row of the request that score i of a step row stands for; -1: none.
__device__ __forceinline__ std::int64_t scored_row(const IndexSelectParams& p, std::int64_t r, std::int64_t i) {
  if (p.candidate_mode != CandidateMode::restrict) {
    return i;
  }
  const std::int64_t block = row_at(p.candidates, r, p.candidate_top_blocks)[i / p.candidate_block_size];
  return block < 0 ? -1 : block * p.candidate_block_size + i % p.candidate_block_size;
}

__device__ __forceinline__ std::int64_t num_scores(const IndexSelectParams& p, std::int64_t r) {
  return p.candidate_mode == CandidateMode::restrict ? static_cast<std::int64_t>(p.candidate_top_blocks) * p.candidate_block_size
                                                     : (p.rows.position[r] + 1) / p.ratio;
}

/// One key a thread, all heads. Scores that must never be chosen are -infinity.
template <int kBlocks>
__global__ __launch_bounds__(kScoreThreads) void score_kernel(IndexSelectParams p, std::int64_t first_row, IndexQueries queries,
                                                              float* scores, std::int64_t stride) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  const std::int64_t local = blockIdx.y;
  const std::int64_t r = first_row + local;
  const std::int32_t dim = kBlocks * kQ4IndexGroup;
  int* codes = reinterpret_cast<int*>(memory);                       // [heads, dim / 4]
  float* scales = reinterpret_cast<float*>(memory + p.heads * dim);  // [heads, kBlocks]
  float* head_weight = scales + p.heads * kBlocks;                   // [heads]
  for (std::int32_t i = threadIdx.x; i < p.heads * dim / 4; i += kScoreThreads) {
    codes[i] = reinterpret_cast<const int*>(queries.codes + local * p.heads * dim)[i];
  }
  for (std::int32_t i = threadIdx.x; i < p.heads * kBlocks; i += kScoreThreads) {
    scales[i] = queries.scales[local * p.heads * kBlocks + i];
  }
  for (std::int32_t i = threadIdx.x; i < p.heads; i += kScoreThreads) {
    head_weight[i] = queries.head_weight[local * p.heads + i];
  }
  __syncthreads();
  const std::int64_t visible = (p.rows.position[r] + 1) / p.ratio;
  const std::int32_t* blocks = row_at(p.chunks.block_table, p.rows.chunk[r], p.chunks.max_blocks);
  const std::int64_t count = num_scores(p, r);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kScoreThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kScoreThreads) {
    const std::int64_t j = scored_row(p, r, i);
    if (j < 0 || j >= visible) {
      scores[local * stride + i] = -INFINITY;
      continue;
    }
    const std::int64_t block = blocks[j / p.rows_per_block];
    const std::int64_t place = j % p.rows_per_block;
    const std::uint8_t* base = p.keys + block * p.rows_per_block * index_key_bytes(dim);
    const unsigned* key_words = reinterpret_cast<const unsigned*>(base + place * (dim / 2));
    const std::uint8_t* key_scales = base + static_cast<std::int64_t>(p.rows_per_block) * (dim / 2) + place * kBlocks;
    int key[kBlocks * 8];
    float key_scale[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      key_scale[b] = 0.25F * ue8m0_to_float(key_scales[b]);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const unsigned word = key_words[b * 4 + w];
        key[b * 8 + 2 * w] = four_codes(word & 0xFFFFU);
        key[b * 8 + 2 * w + 1] = four_codes(word >> 16);
      }
    }
    double score = 0;
    for (std::int32_t head = 0; head < p.heads; ++head) {
      double dot = 0;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        int sum = 0;
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          sum = __dp4a(key[b * 8 + w], codes[head * (dim / 4) + b * 8 + w], sum);
        }
        dot += static_cast<double>(static_cast<float>(sum) * (scales[head * kBlocks + b] * key_scale[b]));
      }
      score = fma(static_cast<double>(head_weight[head]), dot < 0.0 ? 0.0 : dot, score);
    }
    const auto value = static_cast<float>(score);
    scores[local * stride + i] = isnan(value) ? -3.402823466e38F : value;
  }
}

/// Best score of every candidate block of a row; the newest block always takes part. [rows, block_stride]
__global__ void block_best_kernel(IndexSelectParams p, std::int64_t first_row, const float* scores, std::int64_t stride, float* best,
                                  std::int64_t block_stride) {
  const std::int64_t local = blockIdx.y;
  const std::int64_t visible = (p.rows.position[first_row + local] + 1) / p.ratio;
  const std::int64_t count = (visible + p.candidate_block_size - 1) / p.candidate_block_size;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; b < count;
       b += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    float value = -3.402823466e38F;
    const std::int64_t end = min((b + 1) * p.candidate_block_size, visible);
    for (std::int64_t j = b * p.candidate_block_size; j < end; ++j) {
      value = fmaxf(value, scores[local * stride + j]);
    }
    best[local * block_stride + b] = b + 1 == count ? INFINITY : value;
  }
}

/// Order of floats as unsigned integers; -infinity is below every number.
__device__ __forceinline__ unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(x == 0.0F ? 0.0F : x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
constexpr unsigned kNever = 0x007FFFFFU;  // order_of(-infinity)

/// Exclusive sum over the threads of a block, and the total.
__device__ std::int32_t block_scan(std::int32_t value, std::int32_t& total, std::int32_t* shared) {
  const std::int32_t lane = threadIdx.x % 32;
  std::int32_t sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::int32_t other = __shfl_up_sync(kWholeWarp, sum, offset);
    sum += lane >= offset ? other : 0;
  }
  if (lane == 31) {
    shared[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  std::int32_t before = 0;
  total = 0;
  for (int warp = 0; warp < kSelectThreads / 32; ++warp) {
    before += warp < static_cast<int>(threadIdx.x / 32) ? shared[warp] : 0;
    total += shared[warp];
  }
  __syncthreads();
  return before + sum - value;
}

enum class Selection : std::uint8_t { rows, blocks };

/// Indices of the `wanted` largest scores of a row, ties to the smaller index, ascending, padded with -1. One block a row.
__global__ __launch_bounds__(kSelectThreads) void select_kernel(IndexSelectParams p, std::int64_t first_row, const float* scores,
                                                                std::int64_t stride, Selection what) {
  __shared__ std::int32_t histogram[256];
  __shared__ std::int32_t warps[kSelectThreads / 32];
  __shared__ unsigned found_digit;
  __shared__ std::int32_t found_above;
  const std::int64_t local = blockIdx.x;
  const std::int64_t r = first_row + local;
  const float* score = scores + local * stride;
  std::int64_t count = num_scores(p, r);
  std::int32_t wanted = p.top_k;
  std::int32_t* out = row_at(p.list, r, p.top_k);
  if (what == Selection::blocks) {
    count = ((p.rows.position[r] + 1) / p.ratio + p.candidate_block_size - 1) / p.candidate_block_size;
    wanted = p.candidate_top_blocks;
    out = row_at(p.candidates, r, p.candidate_top_blocks);
  }
  // The order value of the last one wanted, digit by digit, and how many of its equals are wanted.
  unsigned prefix = 0;
  std::int32_t left = wanted;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (std::int32_t i = threadIdx.x; i < 256; i += kSelectThreads) {
      histogram[i] = 0;
    }
    __syncthreads();
    const unsigned mask = shift == 24 ? 0U : 0xFFFFFFFFU << (shift + 8);
    for (std::int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
      const unsigned order = order_of(score[i]);
      if ((order & mask) == prefix) {
        atomicAdd(&histogram[order >> shift & 255U], 1);
      }
    }
    __syncthreads();
    // The largest digit that, with those above it, has as many as are still wanted; a warp adds eight digits a lane.
    if (threadIdx.x < 32) {
      const std::int32_t lane = threadIdx.x;
      std::int32_t own[8];
      std::int32_t sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {  // lane 0 owns digits 255 … 248
        own[i] = histogram[255 - lane * 8 - i];
        sum += own[i];
      }
      std::int32_t up_to = sum;
      for (int offset = 1; offset < 32; offset *= 2) {
        const std::int32_t other = __shfl_up_sync(kWholeWarp, up_to, offset);
        up_to += lane >= offset ? other : 0;
      }
      const unsigned enough = __ballot_sync(kWholeWarp, up_to >= left);
      const std::int32_t owner = enough == 0 ? 31 : __ffs(static_cast<int>(enough)) - 1;
      if (lane == owner) {
        std::int32_t above = up_to - sum;
        std::int32_t digit = 255 - lane * 8;
#pragma unroll
        for (int i = 0; i < 7; ++i) {
          if (digit == 255 - lane * 8 - i && above + own[i] < left) {
            above += own[i];
            --digit;
          }
        }
        found_digit = static_cast<unsigned>(digit);
        found_above = above;
      }
    }
    __syncthreads();
    prefix |= found_digit << shift;
    left -= found_above;
    __syncthreads();
  }
  std::int32_t written = 0;
  std::int32_t equals = 0;
  const std::int64_t rounds = (count + kSelectThreads - 1) / kSelectThreads;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t i = round * kSelectThreads + threadIdx.x;
    const unsigned order = i < count ? order_of(score[i]) : kNever;
    const bool is_valid = order > kNever;
    const bool is_equal = is_valid && order == prefix;
    std::int32_t total = 0;
    const std::int32_t rank = block_scan(is_equal ? 1 : 0, total, warps);
    const bool is_chosen = is_valid && (order > prefix || (is_equal && equals + rank < left));
    equals += total;
    const std::int32_t place = block_scan(is_chosen ? 1 : 0, total, warps);
    if (is_chosen) {
      out[written + place] = static_cast<std::int32_t>(what == Selection::rows ? scored_row(p, r, i) : i);
    }
    written += total;
  }
  for (std::int32_t i = written + threadIdx.x; i < wanted; i += kSelectThreads) {
    out[i] = -1;
  }
}

using ScoreKernel = void (*)(IndexSelectParams, std::int64_t, IndexQueries, float*, std::int64_t);

ScoreKernel score_kernel_for(std::int32_t blocks) {
  constexpr ScoreKernel kKernels[kMaxScaleBlocks] = {score_kernel<1>, score_kernel<2>, score_kernel<3>, score_kernel<4>,
                                                     score_kernel<5>, score_kernel<6>, score_kernel<7>, score_kernel<8>};
  return kKernels[blocks - 1];
}

IndexQueries lay_out(const IndexSelectParams& p, std::int64_t rows, std::uint8_t* base, std::size_t& end) {
  const std::size_t queries = static_cast<std::size_t>(rows) * static_cast<std::size_t>(p.heads);
  IndexQueries out;
  out.codes = reinterpret_cast<std::int8_t*>(base);
  end = (queries * static_cast<std::size_t>(p.index_dim) + 255) / 256 * 256;
  out.scales = reinterpret_cast<float*>(base + end);
  end += queries * static_cast<std::size_t>(scale_blocks(p)) * sizeof(float);
  out.head_weight = reinterpret_cast<float*>(base + end);
  end += queries * sizeof(float);
  return out;
}

}  // namespace

std::size_t index_query_bytes(const IndexSelectParams& p, std::int64_t rows) {
  std::size_t size_bytes = 0;
  lay_out(p, rows, nullptr, size_bytes);
  return size_bytes;
}

std::int64_t index_scores_per_row(const IndexSelectParams& p) {
  const std::int64_t rows = static_cast<std::int64_t>(p.chunks.max_blocks) * p.rows_per_block;
  switch (p.candidate_mode) {
    case CandidateMode::none:
      return rows;
    case CandidateMode::produce:  // and the best of every block
      return rows + (rows + p.candidate_block_size - 1) / p.candidate_block_size;
    case CandidateMode::restrict:
      return static_cast<std::int64_t>(p.candidate_top_blocks) * p.candidate_block_size;
  }
  return 0;
}

void index_select(const IndexSelectParams& p, std::int64_t first_row, std::int64_t rows, void* query_memory, float* scores,
                  cudaStream_t stream) {
  std::size_t unused = 0;
  const IndexQueries queries = lay_out(p, rows, static_cast<std::uint8_t*>(query_memory), unused);
  const auto factor = static_cast<float>(1.0 / sqrt(static_cast<double>(p.index_dim) * p.heads));
  make_queries_kernel<<<static_cast<unsigned>(rows * p.heads), kScoreThreads, p.index_dim * sizeof(bf16), stream>>>(p, first_row, factor,
                                                                                                                    queries);
  const std::int64_t stride = index_scores_per_row(p);
  constexpr std::int64_t kWaves = 132 * 8;  // blocks that keep a large GPU busy; each goes on to further keys
  const std::int64_t needed = (stride + kScoreThreads - 1) / kScoreThreads;
  const dim3 grid(static_cast<unsigned>(std::min(needed, kWaves / rows + 1)), static_cast<unsigned>(rows));
  const std::size_t shared_bytes = static_cast<std::size_t>(p.heads) * (p.index_dim + (scale_blocks(p) + 1) * sizeof(float));
  score_kernel_for(scale_blocks(p))<<<grid, kScoreThreads, shared_bytes, stream>>>(p, first_row, queries, scores, stride);
  if (p.candidate_mode == CandidateMode::produce) {
    float* best = scores + static_cast<std::int64_t>(p.chunks.max_blocks) * p.rows_per_block;  // behind the scores of each row
    block_best_kernel<<<grid, kScoreThreads, 0, stream>>>(p, first_row, scores, stride, best, stride);
    select_kernel<<<static_cast<unsigned>(rows), kSelectThreads, 0, stream>>>(p, first_row, best, stride, Selection::blocks);
  }
  select_kernel<<<static_cast<unsigned>(rows), kSelectThreads, 0, stream>>>(p, first_row, scores, stride, Selection::rows);
}

}  // namespace deepinfer::cuda
