// Routing (docs/spec/model.md 5.5): which experts a row chooses, and their weights.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/block_sums.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"
#include "sampling/prefix.h"

namespace deepinfer::cuda {
namespace {

__device__ double softplus(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }

/// The best of a lane's experts lane, lane + 32, …: larger value first, then the smaller id.
struct LaneBest {
  unsigned order = 0;  ///< below that of every value
  std::int32_t id = INT32_MAX;

  __device__ LaneBest(const float* values, std::int32_t count, unsigned chosen) {
    for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < count; e += 32) {
      const unsigned own = sampling::order_key(values[e]);
      if ((chosen >> e / 32 & 1U) == 0 && own > order) {
        order = own;
        id = e;
      }
    }
  }
};

/// One block a row: a thread scores an expert, the first warp chooses. Shared memory: scores, biased scores, chosen experts.
__global__ void select_experts_kernel(RouteParams p, const float* logits) {
  extern __shared__ float memory[];
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  float* scores = memory;
  float* biased = memory + p.num_experts;
  auto* ids = reinterpret_cast<std::int32_t*>(memory + 2 * p.num_experts);
  const bool is_image = p.is_image != nullptr && p.is_image[r] != 0;
  const float* bias = is_image ? p.bias_image : p.bias;
  bool finite = true;
  for (auto e = static_cast<std::int32_t>(threadIdx.x); e < p.num_experts; e += static_cast<std::int32_t>(blockDim.x)) {
    const float logit = logits[r * p.num_experts + e];
    scores[e] = static_cast<float>(sqrt(softplus(logit)));
    const float value = scores[e] + bias[e];
    biased[e] = isnan(value) ? -INFINITY : value;
    finite = finite && isfinite(logit);
  }
  finite = __syncthreads_and(finite) != 0;
  if (threadIdx.x >= 32) {
    return;
  }
  // The best of what is left, top_k times. A lane marks those of its experts that are chosen in a word.
  unsigned chosen = 0;
  LaneBest best(biased, p.num_experts, chosen);
  for (std::int32_t i = 0; i < p.top_k; ++i) {
    const unsigned order = __reduce_max_sync(kWholeWarp, best.order);
    const std::int32_t id = __reduce_min_sync(kWholeWarp, best.order == order ? best.id : INT32_MAX);
    if (id == best.id) {
      chosen |= 1U << id / 32;
      best = LaneBest(biased, p.num_experts, chosen);
    }
  }
  // Ascending ids: word by word of 32 experts.
  std::int32_t before = 0;
  for (std::int32_t word = 0; word * 32 < p.num_experts; ++word) {
    const bool is_chosen = (chosen >> word & 1U) != 0;
    const unsigned mask = __ballot_sync(kWholeWarp, is_chosen);
    if (is_chosen) {
      ids[before + __popc(mask & ((1U << lane) - 1U))] = word * 32 + lane;
    }
    before += __popc(mask);
  }
  __syncwarp();
  double sum = 1e-20;
  for (std::int32_t i = 0; i < p.top_k; ++i) {
    sum += scores[ids[i]];
  }
  for (std::int32_t i = lane; i < p.top_k; i += 32) {
    p.expert[r * p.top_k + i] = ids[i];
    p.expert_weight[r * p.top_k + i] = finite ? static_cast<float>(scores[ids[i]] / sum * p.routed_scaling) : NAN;
  }
}

}  // namespace

void select_experts(const RouteParams& p, const float* logits, cudaStream_t stream) {
  // A thread an expert takes the least time for one row, fewer for many: one warp of each chooses.
  constexpr std::int32_t kFewRows = 512;
  constexpr std::int32_t kManyThreads = 128;
  const std::int32_t most = p.num_rows <= kFewRows ? kRowThreads : kManyThreads;
  start(select_experts_kernel,
        {.grid = dim3(p.num_rows),
         .block = std::min(most, (p.num_experts + 31) / 32 * 32),
         .shared_bytes = static_cast<std::size_t>(2 * p.num_experts + p.top_k) * sizeof(float)},
        stream, p, logits);
}

}  // namespace deepinfer::cuda
