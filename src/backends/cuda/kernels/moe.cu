// Routing and experts (docs/spec/model.md 5.5). Pairs (row, choice) are sorted by expert, so that each expert is one product over its
// columns; the order of columns within an expert is free, since no column sees another.
#include <algorithm>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

constexpr int kSortThreads = 1024;
constexpr int kMaxExperts = kSortThreads;

// --- routing ------------------------------------------------------------------------------------------------------

__device__ double softplus(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }

/// Larger value first, then the smaller id. Values are never NaN.
__device__ bool is_better(float value, std::int32_t id, float other, std::int32_t other_id) {
  return value > other || (value == other && id < other_id);
}

/// One warp a row. Shared memory: scores, then biased scores, of every warp.
__global__ void select_experts_kernel(RouteParams p, const float* logits) {
  extern __shared__ float memory[];
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (r >= p.num_rows) {
    return;
  }
  const std::int32_t lane = threadIdx.x % 32;
  float* scores = memory + threadIdx.x / 32 * 2 * p.num_experts;
  float* biased = scores + p.num_experts;
  const bool is_image = p.is_image != nullptr && p.is_image[r] != 0;
  const float* bias = is_image ? p.bias_image : p.bias;
  bool finite = true;
  for (std::int32_t e = lane; e < p.num_experts; e += 32) {
    const float logit = logits[r * p.num_experts + e];
    scores[e] = static_cast<float>(sqrt(softplus(logit)));
    const float value = scores[e] + bias[e];
    biased[e] = isnan(value) ? -INFINITY : value;
    finite = finite && isfinite(logit);
  }
  finite = __all_sync(kWholeWarp, finite);
  __syncwarp();
  // The best of what is left, top_k times. A lane owns experts lane, lane + 32, … and marks the chosen ones in a word.
  unsigned chosen = 0;
  double sum = 1e-20;
  for (std::int32_t i = 0; i < p.top_k; ++i) {
    float best = -INFINITY;
    std::int32_t best_id = p.num_experts;
    for (std::int32_t e = lane; e < p.num_experts; e += 32) {
      if ((chosen >> e / 32 & 1U) == 0 && (best_id == p.num_experts || is_better(biased[e], e, best, best_id))) {
        best = biased[e];
        best_id = e;
      }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, best, offset);
      const std::int32_t other_id = __shfl_xor_sync(kWholeWarp, best_id, offset);
      if (best_id == p.num_experts || (other_id < p.num_experts && is_better(other, other_id, best, best_id))) {
        best = other;
        best_id = other_id;
      }
    }
    chosen |= best_id % 32 == lane ? 1U << best_id / 32 : 0U;
  }
  // Ascending ids: word by word of 32 experts.
  for (int pass = 0; pass < 2; ++pass) {  // the sum of the chosen scores first
    std::int32_t before = 0;
    for (std::int32_t word = 0; word * 32 < p.num_experts; ++word) {
      const bool is_chosen = (chosen >> word & 1U) != 0;
      const unsigned mask = __ballot_sync(kWholeWarp, is_chosen);
      if (pass == 0) {
        for (unsigned left = mask; left != 0; left &= left - 1) {
          sum += scores[word * 32 + __ffs(static_cast<int>(left)) - 1];
        }
      } else if (is_chosen) {
        const std::int32_t e = word * 32 + lane;
        const std::int64_t place = r * p.top_k + before + __popc(mask & ((1U << lane) - 1U));
        p.expert[place] = e;
        p.expert_weight[place] = finite ? static_cast<float>(scores[e] / sum * p.routed_scaling) : NAN;
      }
      before += __popc(mask);
    }
  }
}

// --- experts ------------------------------------------------------------------------------------------------------

/// Device memory between the kernels of one call. P = rows * top_k pairs, sorted by expert; the shared expert's rows follow.
struct MoeScratch {
  std::int32_t* row_of;    // [P] row of a sorted pair
  std::int32_t* place_of;  // [P] sorted place of pair row * top_k + choice
  std::int32_t* num_tiles;
  int4* tiles;
  bf16* x_routed;  // [rows, hidden] in the order of the routed weights
  bf16* x_shared;  // [rows, hidden] in the order of the shared weights
  bf16* gate_up;   // [P + rows, 2 * intermediate]
  bf16* act;       // [P + rows, intermediate]
  bf16* out;       // [P + rows, hidden]
};

std::int64_t max_tiles(const MoeParams& p, int tile_columns) {
  const std::int64_t pairs = static_cast<std::int64_t>(p.num_rows) * p.top_k;
  return pairs / tile_columns + std::min<std::int64_t>(p.num_experts, pairs);
}

/// Lays the parts out from `base`; with base null `end` is the size.
MoeScratch lay_out(const MoeParams& p, std::uint8_t* base, std::size_t& end) {
  const std::size_t rows = static_cast<std::size_t>(p.num_rows);
  const std::size_t pairs = rows * static_cast<std::size_t>(p.top_k);
  end = 0;
  const auto take = [&]<class T>(T*& out, std::size_t count) {
    out = reinterpret_cast<T*>(base + end);
    end += (count * sizeof(T) + 255) / 256 * 256;
  };
  MoeScratch s{};
  take(s.row_of, pairs);
  take(s.place_of, pairs);
  take(s.num_tiles, 1);
  take(s.tiles, static_cast<std::size_t>(max_tiles(p, 8)));
  take(s.x_routed, rows * static_cast<std::size_t>(p.hidden));
  take(s.x_shared, rows * static_cast<std::size_t>(p.hidden));
  take(s.gate_up, (pairs + rows) * 2 * static_cast<std::size_t>(p.intermediate));
  take(s.act, (pairs + rows) * static_cast<std::size_t>(p.intermediate));
  take(s.out, (pairs + rows) * static_cast<std::size_t>(p.hidden));
  return s;
}

/// Exclusive sum over the threads of a block of kSortThreads.
__device__ std::int32_t scan(std::int32_t value, std::int32_t* shared) {
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
  for (std::int32_t warp = 0; warp < static_cast<std::int32_t>(threadIdx.x / 32); ++warp) {
    before += shared[warp];
  }
  __syncthreads();
  return before + sum - value;
}

/// One block, a thread an expert: counts, offsets, tiles and places of all pairs.
__global__ void sort_pairs_kernel(MoeParams p, MoeScratch s, std::int32_t tile_columns) {
  __shared__ std::int32_t cursor[kMaxExperts];
  __shared__ std::int32_t count[kMaxExperts];
  __shared__ std::int32_t warps[kSortThreads / 32];
  const std::int32_t pairs = p.num_rows * p.top_k;
  const std::int32_t e = threadIdx.x;
  count[e] = 0;
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < pairs; i += kSortThreads) {
    atomicAdd(&count[p.expert[i]], 1);
  }
  __syncthreads();
  const std::int32_t first = scan(count[e], warps);
  const std::int32_t tiles = (count[e] + tile_columns - 1) / tile_columns;
  const std::int32_t first_tile = scan(tiles, warps);
  cursor[e] = first;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    const std::int32_t done = tile * tile_columns;
    s.tiles[first_tile + tile] = make_int4(e, first + done, min(tile_columns, count[e] - done), 0);
  }
  if (e + 1 == kSortThreads) {
    *s.num_tiles = first_tile + tiles;
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < pairs; i += kSortThreads) {
    const std::int32_t place = atomicAdd(&cursor[p.expert[i]], 1);
    s.row_of[place] = i / p.top_k;
    s.place_of[i] = place;
  }
}

/// Q8(bf16(silu(min(g, limit)) * clamp(t, +-limit) * weight)) as bf16 values in the order of w2. One block a pair or a shared row.
__global__ void activate_kernel(MoeParams p, MoeScratch s) {
  const std::int64_t pairs = static_cast<std::int64_t>(p.num_rows) * p.top_k;
  const std::int64_t i = blockIdx.x;  // as in gate_up; pairs come by their unsorted index, so that weights are at hand
  const bool is_shared = i >= pairs;
  const std::int64_t place = is_shared ? i : s.place_of[i];
  const double weight = is_shared ? 1.0F : p.expert_weight[i];
  const double limit = p.swiglu_limit > 0 ? static_cast<double>(p.swiglu_limit) : static_cast<double>(INFINITY);
  const WeightKind kind = is_shared ? kind_of(p.shared.w2.format) : WeightKind::fp4;
  const int codes = codes_of(kind, vector_bytes(kind, p.intermediate));
  const bf16* gate_up = row_at(s.gate_up, place, 2 * static_cast<std::int64_t>(p.intermediate));
  for (std::int32_t c = threadIdx.x; c < p.intermediate; c += kBlockThreads) {
    double g = to_float(gate_up[c]);
    double t = to_float(gate_up[p.intermediate + c]);
    g = g > limit ? limit : g;
    t = t > limit ? limit : t;
    t = t < -limit ? -limit : t;
    const float value = to_float(round_bf16(g / (1.0 + exp(-g)) * t * weight));
    const float scale = ue8m0_to_float(power_of_two_scale(group_amax(value, kQ8Group, kQ8Floor), kE4M3Max));
    const float code = e4m3_to_float(float_to_e4m3(value * (1.0F / scale)));
    row_at(s.act, place, p.intermediate)[x_place(kind, codes, c)] = to_bf16(code * scale);
  }
}

/// The sum of a row's outputs in ascending expert order, then the shared expert.
__global__ void combine_kernel(MoeParams p, MoeScratch s) {
  const std::int64_t r = blockIdx.x;
  const std::int32_t c = blockIdx.y * kBlockThreads + threadIdx.x;
  const std::int64_t pairs = static_cast<std::int64_t>(p.num_rows) * p.top_k;
  if (c >= p.hidden) {
    return;
  }
  double sum = 0;
#pragma unroll 8
  for (std::int32_t i = 0; i < p.top_k; ++i) {
    sum += to_float(row_at(s.out, s.place_of[r * p.top_k + i], p.hidden)[c]);
  }
  sum += to_float(row_at(s.out, pairs + r, p.hidden)[c]);
  row_at(p.y, r, p.hidden)[c] = round_bf16(sum);
}

/// One linear of the shared expert over all rows.
void shared_linear(const QuantWeight& weight, const bf16* x, std::int32_t n, std::int32_t k, bf16* y, std::int64_t y_stride,
                   std::int32_t rows, cudaStream_t stream) {
  const int columns = tile_columns_for(rows);
  const GemmParams gemm{.n = n,
                        .k = k,
                        .codes = weight.codes,
                        .scales = weight.scales,
                        .num_columns = rows,
                        .x = x,
                        .x_stride = k,
                        .y_bf16 = y,
                        .y_stride = y_stride};
  launch_gemm(kind_of(weight.format), gemm, columns, (rows + columns - 1) / columns, 1, stream);
}

}  // namespace

void select_experts(const RouteParams& p, const float* logits, cudaStream_t stream) {
  constexpr int kWarps = 4;
  const std::size_t shared_bytes = static_cast<std::size_t>(kWarps) * 2 * p.num_experts * sizeof(float);
  select_experts_kernel<<<(p.num_rows + kWarps - 1) / kWarps, kWarps * 32, shared_bytes, stream>>>(p, logits);
}

std::size_t moe_scratch_bytes(const MoeParams& p) {
  std::size_t size_bytes = 0;
  lay_out(p, nullptr, size_bytes);
  return size_bytes;
}

void moe(const MoeParams& p, void* scratch, cudaStream_t stream) {
  std::size_t unused = 0;
  const MoeScratch s = lay_out(p, static_cast<std::uint8_t*>(scratch), unused);
  const std::int64_t pairs = static_cast<std::int64_t>(p.num_rows) * p.top_k;
  const std::int32_t wide = 2 * p.intermediate;
  decode_q8(p.x, p.num_rows, p.hidden, WeightFormat::fp4, s.x_routed, stream);
  decode_q8(p.x, p.num_rows, p.hidden, p.shared.w1.format, s.x_shared, stream);
  const int columns = tile_columns_for(static_cast<int>((pairs + p.num_experts - 1) / p.num_experts));
  const int tiles = static_cast<int>(max_tiles(p, columns));
  GemmParams gemm{.n = p.intermediate,
                  .k = p.hidden,
                  .experts = p.experts,
                  .part = 0,
                  .num_tiles = s.num_tiles,
                  .tiles = s.tiles,
                  .x_row = s.row_of,
                  .x = s.x_routed,
                  .x_stride = p.hidden,
                  .y_bf16 = s.gate_up,
                  .y_stride = wide};
  if (pairs > 0) {
    sort_pairs_kernel<<<1, kSortThreads, 0, stream>>>(p, s, columns);
    launch_gemm(WeightKind::fp4, gemm, columns, tiles, 2, stream);
  }
  bf16* shared_gate_up = s.gate_up + pairs * wide;
  shared_linear(p.shared.w1, s.x_shared, p.intermediate, p.hidden, shared_gate_up, wide, p.num_rows, stream);
  shared_linear(p.shared.w3, s.x_shared, p.intermediate, p.hidden, shared_gate_up + p.intermediate, wide, p.num_rows, stream);
  activate_kernel<<<static_cast<unsigned>(pairs + p.num_rows), kBlockThreads, 0, stream>>>(p, s);
  gemm.n = p.hidden;
  gemm.k = p.intermediate;
  gemm.part = 2;
  gemm.x_row = nullptr;
  gemm.x = s.act;
  gemm.x_stride = p.intermediate;
  gemm.y_bf16 = s.out;
  gemm.y_stride = p.hidden;
  if (pairs > 0) {
    launch_gemm(WeightKind::fp4, gemm, columns, tiles, 1, stream);
  }
  shared_linear(p.shared.w2, s.act + pairs * p.intermediate, p.hidden, p.intermediate, s.out + pairs * p.hidden, p.hidden, p.num_rows,
                stream);
  combine_kernel<<<dim3(p.num_rows, (p.hidden + kBlockThreads - 1) / kBlockThreads), kBlockThreads, 0, stream>>>(p, s);
}

}  // namespace deepinfer::cuda
