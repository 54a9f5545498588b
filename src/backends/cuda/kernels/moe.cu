// Routing and experts (docs/spec/model.md 5.5). Pairs (row, choice) are sorted by expert, so that each expert is one product over its
// columns; the order of columns within an expert is free, since no column sees another.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/packed_order.cuh"
#include "backends/cuda/kernels/row_vectors.cuh"
#include "backends/cuda/kernels/start.cuh"
#include "sampling/prefix.h"

namespace deepinfer::cuda {
namespace {

constexpr int kSortThreads = 1024;
constexpr int kMaxExperts = kSortThreads;

// --- routing ------------------------------------------------------------------------------------------------------

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

// --- experts ------------------------------------------------------------------------------------------------------

/// How the products of one call are cut. The experts' products share one list of tiles.
struct MoePlan {
  std::int64_t pairs;
  ColumnTiles routed;
  WeightKind shared_kind;
  ColumnTiles shared_in, shared_out;

  explicit MoePlan(const MoeParams& p)
      : pairs(static_cast<std::int64_t>(p.num_rows) * p.top_k),
        routed(tiles_for_experts(
            takes_warpgroups(WeightKind::fp4, p.intermediate, p.hidden) && takes_warpgroups(WeightKind::fp4, p.hidden, p.intermediate), pairs,
            p.num_experts)),
        shared_kind(kind_of(p.shared.w1.format)),
        shared_in(tiles_for(shared_kind, 2, p.intermediate, p.hidden, p.num_rows)),
        shared_out(tiles_for(kind_of(p.shared.w2.format), 1, p.hidden, p.intermediate, p.num_rows)) {}
};

/// Device memory between the kernels of one call. P = rows * top_k pairs, sorted by expert; the shared expert's rows follow.
struct MoeScratch {
  std::int32_t* row_of;     // [P] row of a sorted pair
  std::int32_t* place_of;   // [P] sorted place of pair row * top_k + choice
  std::int32_t* pair_of;    // [P] and the other way round
  std::int32_t* num_tiles;  // and steps of wide tiles
  int4* tiles;
  std::int32_t* tile_of;  // wide tiles: of each step of places
  bf16* x_routed;  // inputs of w1 and w3, packed or [rows, hidden]
  bf16* x_shared;
  bf16* gate_up;     // [P + rows, 2 * intermediate]
  Q8Rows act;        // [P + rows, intermediate]
  bf16* act_routed;  // inputs of w2, packed or [P, intermediate]
  bf16* act_shared;
  bf16* out;  // [P + rows, hidden]
};

/// Lays the parts out from `base`; with base null `end` is the size.
MoeScratch lay_out(const MoeParams& p, const MoePlan& plan, std::uint8_t* base, std::size_t& end) {
  const std::int64_t rows = p.num_rows;
  const std::int64_t all = plan.pairs + rows;
  end = 0;
  const auto take = [&]<class T>(T*& out, std::int64_t count) {
    out = reinterpret_cast<T*>(base + end);
    end += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
  };
  const auto inputs = [](const ColumnTiles& tiles, std::int64_t rows_there, int k) {
    return tiles.is_packed ? tiles.values(k) : tiles.reads_plain() ? 0 : rows_there * k;
  };
  MoeScratch s{};
  take(s.row_of, plan.pairs);
  take(s.place_of, plan.pairs);
  take(s.pair_of, plan.pairs);
  take(s.num_tiles, 2);
  take(s.tiles, plan.routed.count);
  take(s.tile_of, plan.routed.is_wide ? plan.routed.places / kWideStep : 0);
  take(s.x_routed, inputs(plan.routed, rows, p.hidden));
  take(s.x_shared, inputs(plan.shared_in, rows, p.hidden));
  take(s.gate_up, all * 2 * p.intermediate);
  take(s.act.codes, all * p.intermediate);
  take(s.act.scales, all * p.intermediate / kQ8Group);
  take(s.act_routed, inputs(plan.routed, plan.pairs, p.intermediate));
  take(s.act_shared, inputs(plan.shared_out, rows, p.intermediate));
  take(s.out, all * p.hidden);
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
__global__ void sort_pairs_kernel(MoeParams p, MoeScratch s, ColumnTiles routed) {
  __shared__ std::int32_t cursor[kMaxExperts];
  __shared__ std::int32_t count[kMaxExperts];
  __shared__ std::int32_t warps[kSortThreads / 32];
  const std::int32_t pairs = p.num_rows * p.top_k;
  const std::int32_t e = threadIdx.x;
  begin_in_turn();
  count[e] = 0;
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < pairs; i += kSortThreads) {
    atomicAdd(&count[p.expert[i]], 1);
  }
  __syncthreads();
  const std::int32_t part = routed.is_wide ? wide_part(count[e], routed.columns) : routed.columns;  // columns of a tile
  const std::int32_t room = routed.is_wide ? wide_columns(part, routed.columns) : part;  // their places; less in the last one of an expert
  const std::int32_t tiles = (count[e] + part - 1) / part;
  const std::int32_t last = tiles == 0 ? 0 : count[e] - (tiles - 1) * part;
  const std::int32_t places = tiles == 0 ? 0 : (tiles - 1) * room + (routed.is_wide ? wide_columns(last, routed.columns) : room);
  const std::int32_t first = scan(count[e], warps);
  const std::int32_t first_tile = scan(tiles, warps);
  const std::int32_t first_place = scan(places, warps);
  cursor[e] = first;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    const std::int32_t done = tile * part;
    s.tiles[first_tile + tile] = make_int4(e, first + done, min(part, count[e] - done), first_place + tile * room);
  }
  for (std::int32_t step = 0; routed.is_wide && step < places / kWideStep; ++step) {
    s.tile_of[first_place / kWideStep + step] = first_tile + step * kWideStep / room;
  }
  if (e + 1 == kSortThreads) {
    s.num_tiles[0] = first_tile + tiles;
    s.num_tiles[1] = (first_place + places) / kWideStep;
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < pairs; i += kSortThreads) {
    const std::int32_t place = atomicAdd(&cursor[p.expert[i]], 1);
    s.row_of[place] = i / p.top_k;
    s.place_of[i] = place;
    s.pair_of[place] = i;
  }
}

constexpr int kActivateThreads = 96;  // of the 288 that an intermediate row of the released model takes

/// bf16(silu(g) * t * weight) as the reference computes it: in double precision, with clamped g and t.
__device__ __noinline__ float activate_exactly(float gate, float up, float limit, float weight) {
  const double g = gate > limit ? limit : gate;
  const double t = up > limit ? limit : up < -limit ? -limit : up;
  return to_float(round_bf16(g / (1.0 + exp(-g)) * t * weight));
}

/// The same, if single precision decides the rounding. It is wrong by less than 2^-20 (exponential and quotient 2 units in the last place each, a
/// sum and two products one half each), which leaves one value of 2,000 open.
struct QuickActivation {
  float value;
  bool is_decided;

  __device__ __forceinline__ QuickActivation(float gate, float up, float limit, float weight) {
    constexpr float kError = 0x1p-20F;
    constexpr float kLeast = 0x1p-100F;  // of intermediate results too, which have fewer digits below 2^-126
    const float g = gate > limit ? limit : gate;
    const float t = up > limit ? limit : up < -limit ? -limit : up;
    const float silu = __fdividef(g, 1.0F + expf(-g));
    const float x = silu * t * weight;
    const unsigned bounds = bf16_pair(x * (1.0F - kError), x * (1.0F + kError));
    const float least = fminf(fminf(fabsf(silu), fabsf(silu * t)), fabsf(x));
    value = __uint_as_float(bounds << 16);
    is_decided = bounds >> 16 == (bounds & 0xFFFFU) && least > kLeast && fabsf(x) < INFINITY;
  }
};

__device__ __forceinline__ Vector activate_vector(const Vector& gate, const Vector& up, float limit, float weight) {
  Vector out;
  unsigned open = 0;  // one branch for all, so that the values are worked out side by side
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const QuickActivation quick(gate.v[e], up.v[e], limit, weight);
    out.v[e] = quick.value;
    open |= quick.is_decided ? 0U : 1U << e;
  }
  if (open != 0) {
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      if ((open >> e & 1U) != 0) {
        out.v[e] = activate_exactly(gate.v[e], up.v[e], limit, weight);
      }
    }
  }
  return out;
}

__device__ __forceinline__ float limit_of(const MoeParams& p) { return p.swiglu_limit > 0 ? p.swiglu_limit : INFINITY; }

/// Q8(bf16(silu(min(g, limit)) * clamp(t, +-limit) * weight)), eight neighbouring values a thread. Blocks (row of gate_up from `first` on, part
/// of it).
__global__ void activate_kernel(MoeParams p, MoeScratch s, std::int64_t first) {
  begin_in_turn();
  const std::int64_t place = first + blockIdx.x;
  const bool is_shared = place >= static_cast<std::int64_t>(p.num_rows) * p.top_k;
  const float weight = is_shared ? 1.0F : p.expert_weight[s.pair_of[place]];
  const bf16* gate_up = row_at(s.gate_up, place, 2 * static_cast<std::int64_t>(p.intermediate));
  const std::int32_t c = static_cast<std::int32_t>(blockIdx.y * kActivateThreads + threadIdx.x) * kVector;
  const bool inside = c < p.intermediate;
  Vector x{};
  if (inside) {
    x = activate_vector(load_vector(gate_up + c), load_vector(gate_up + p.intermediate + c), limit_of(p), weight);
  }
  const VectorQ8 q8 = quantise_vector(x);
  if (inside) {
    store_vector_q8(q8, c, row_at(s.act.codes, place, p.intermediate), row_at(s.act.scales, place, p.intermediate / kQ8Group));
  }
}

constexpr int kLaneVectors = kQ8Group / kVector;
constexpr int kActivateWarpValues = 4 * kQ8Group;  // of each of eight columns; divides the intermediate width

/// The same for routed products that take packed activations, packed as pack_q8() would pack that Q8. A lane takes whole groups; a warp those
/// of eight neighbouring columns, so that it writes 128 bytes together.
__global__ void activate_packed_kernel(MoeParams p, MoeScratch s, PackParams to) {
  begin_in_turn();
  PackedColumn c;
  if (!find_column(to, blockIdx.y, threadIdx.x % 32 / 4, c)) {
    return;
  }
  const float weight = p.expert_weight[s.pair_of[c.column]];
  const float limit = limit_of(p);
  const bf16* gate_up = row_at(s.gate_up, c.column, 2 * static_cast<std::int64_t>(p.intermediate));
  bf16* const out = to.out + c.first * p.intermediate;
  for (int k = static_cast<int>(blockIdx.x * kPackWarps + threadIdx.x / 32) * kActivateWarpValues + static_cast<int>(threadIdx.x % 4) * kQ8Group;
       k < p.intermediate; k += static_cast<int>(gridDim.x) * kPackWarps * kActivateWarpValues) {
    uint4 gate[kLaneVectors];
    uint4 up[kLaneVectors];
#pragma unroll
    for (int i = 0; i < kLaneVectors; ++i) {
      gate[i] = *reinterpret_cast<const uint4*>(gate_up + k + i * kVector);
      up[i] = *reinterpret_cast<const uint4*>(gate_up + p.intermediate + k + i * kVector);
    }
    Vector x[kLaneVectors];
    float amax = kQ8Floor;
#pragma unroll
    for (int i = 0; i < kLaneVectors; ++i) {
      x[i] = activate_vector(vector_of(gate[i]), vector_of(up[i]), limit, weight);
      amax = largest_magnitude(x[i], amax);
    }
    const float scale = ue8m0_to_float(power_of_two_scale(amax, kE4M3Max));
    const float inverse = 1.0F / scale;
#pragma unroll
    for (int i = 0; i < kLaneVectors; ++i) {
#pragma unroll
      for (int e = 0; e < kVector; e += 2) {
        const float2 two = e4m3_pair(to_e4m3_pair(x[i].v[e] * inverse, x[i].v[e + 1] * inverse));
        x[i].v[e] = two.x * scale;
        x[i].v[e + 1] = two.y * scale;
      }
      store_packed<WeightKind::fp4>(pair_up<WeightKind::fp4>(x[i].v), k + i * kVector, c.within, c.columns, out);
    }
  }
}

constexpr int kCombineThreads = 128;  // of the 640 that a row of the released model takes

/// The sum of a row's outputs in ascending expert order, then the shared expert; eight neighbouring values a thread.
__global__ void combine_kernel(MoeParams p, MoeScratch s) {
  begin_in_turn();
  const std::int64_t r = blockIdx.x;
  const std::int32_t c = static_cast<std::int32_t>(blockIdx.y * kCombineThreads + threadIdx.x) * kVector;
  const std::int64_t pairs = static_cast<std::int64_t>(p.num_rows) * p.top_k;
  if (c >= p.hidden) {
    return;
  }
  constexpr int kTogether = 8;  // rows that are on their way at once
  double sums[kVector] = {};
  for (std::int32_t first = 0; first <= p.top_k; first += kTogether) {
    uint4 words[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i <= p.top_k) {
        const std::int64_t place = first + i < p.top_k ? s.place_of[r * p.top_k + first + i] : pairs + r;
        words[i] = *reinterpret_cast<const uint4*>(row_at(s.out, place, p.hidden) + c);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i <= p.top_k) {
        const Vector x = vector_of(words[i]);
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          sums[e] += x.v[e];
        }
      }
    }
  }
  Vector y;
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    y.v[e] = to_float(round_bf16(sums[e]));
  }
  store_vector(y, row_at(p.y, r, p.hidden) + c);
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

std::size_t moe_scratch_bytes(const MoeParams& p) {
  std::size_t size_bytes = 0;
  lay_out(p, MoePlan(p), nullptr, size_bytes);
  return size_bytes;
}

namespace {

MoeScratch scratch_of(const MoeParams& p, const MoePlan& plan, void* scratch) {
  std::size_t unused = 0;
  return lay_out(p, plan, static_cast<std::uint8_t*>(scratch), unused);
}

/// Q8 of the rows [first, first + count) of gate_up.
void activate(const MoeParams& p, const MoeScratch& s, std::int64_t first, std::int64_t count, cudaStream_t stream) {
  constexpr int kPart = kActivateThreads * kVector;
  start(activate_kernel, {.grid = dim3(static_cast<unsigned>(count), (p.intermediate + kPart - 1) / kPart), .block = kActivateThreads}, stream, p,
        s, first);
}

/// How the inputs of w1 and w3 are packed, or those of w2 with other `k` and `out`.
PackParams packing(const MoeParams& p, const MoePlan& plan, const MoeScratch& s) {
  return {.kind = WeightKind::fp4,
          .k = p.hidden,
          .columns = plan.routed,
          .num_columns = p.num_rows,
          .num_tiles = s.num_tiles,
          .tiles = s.tiles,
          .tile_of = plan.routed.is_wide ? s.tile_of : nullptr,
          .num_steps = s.num_tiles + 1,
          .x_row = s.row_of,
          .out = s.x_routed};
}

}  // namespace

void moe_shared(const MoeParams& p, void* scratch, cudaStream_t stream) {
  const MoePlan plan(p);
  const MoeScratch s = scratch_of(p, plan, scratch);
  const std::int32_t rows = p.num_rows;
  const std::int32_t wide = 2 * p.intermediate;
  const Q8Rows act{s.act.codes + plan.pairs * p.intermediate, s.act.scales + plan.pairs * p.intermediate / kQ8Group};
  const auto pack = [&](const ColumnTiles& tiles, WeightKind kind, std::int32_t k, const Q8Rows& x, bf16* out) {
    if (!tiles.reads_plain()) {
      pack_q8({.kind = kind, .k = k, .columns = tiles, .num_columns = rows, .out = out}, x, stream);
    }
  };
  pack(plan.shared_in, plan.shared_kind, p.hidden, p.x, s.x_shared);
  launch_gemm(plan.shared_kind,
              {.n = p.intermediate,
               .k = p.hidden,
               .codes = p.shared.w1.codes,
               .scales = p.shared.w1.scales,
               .second_codes = p.shared.w3.codes,
               .second_scales = p.shared.w3.scales,
               .in_units = lies_in_units(p.shared.w1.format, p.intermediate, p.hidden),
               .num_columns = rows,
               .x = s.x_shared,
               .x_q8 = p.x,
               .x_stride = p.hidden,
               .y_bf16 = s.gate_up + plan.pairs * wide,
               .y_stride = wide},
              plan.shared_in, 2, stream);
  activate(p, s, plan.pairs, rows, stream);
  const WeightKind kind = kind_of(p.shared.w2.format);
  pack(plan.shared_out, kind, p.intermediate, act, s.act_shared);
  launch_gemm(kind,
              {.n = p.hidden,
               .k = p.intermediate,
               .codes = p.shared.w2.codes,
               .scales = p.shared.w2.scales,
               .in_units = lies_in_units(p.shared.w2.format, p.hidden, p.intermediate),
               .num_columns = rows,
               .x = s.act_shared,
               .x_q8 = act,
               .x_stride = p.intermediate,
               .y_bf16 = s.out + plan.pairs * p.hidden,
               .y_stride = p.hidden},
              plan.shared_out, 1, stream);
}

void moe_routed(const MoeParams& p, void* scratch, cudaStream_t stream) {
  const MoePlan plan(p);
  if (plan.pairs == 0) {
    return;
  }
  const MoeScratch s = scratch_of(p, plan, scratch);
  // The tiles come first: the products read them before they wait.
  start(sort_pairs_kernel, {.grid = dim3(1), .block = kSortThreads}, stream, p, s, plan.routed);
  PackParams pack = packing(p, plan, s);
  if (!plan.routed.reads_plain()) {
    pack_q8(pack, p.x, stream);
  }
  GemmParams gemm{.n = p.intermediate,
                  .k = p.hidden,
                  .experts = p.experts,
                  .part = 0,
                  .in_units = lies_in_units(WeightFormat::fp4, p.intermediate, p.hidden),
                  .num_tiles = s.num_tiles,
                  .tiles = s.tiles,
                  .tiles_are_ready = plan.routed.is_packed,
                  .x = s.x_routed,
                  .x_q8 = p.x,
                  .x_row = s.row_of,
                  .x_stride = p.hidden,
                  .y_bf16 = s.gate_up,
                  .y_stride = 2 * p.intermediate};
  launch_gemm(WeightKind::fp4, gemm, plan.routed, 2, stream);
  if (plan.routed.is_packed) {
    pack.k = p.intermediate;
    pack.out = s.act_routed;
    const std::int64_t eights = packing_eights(pack);
    start(activate_packed_kernel,
          {.grid = dim3(packing_parts(p.intermediate, kActivateWarpValues, eights), static_cast<unsigned>(eights)), .block = kBlockThreads}, stream, p,
          s, pack);
  } else {
    activate(p, s, 0, plan.pairs, stream);
    if (!plan.routed.reads_plain()) {
      pack_q8({.kind = WeightKind::fp4,
               .k = p.intermediate,
               .columns = plan.routed,
               .num_columns = static_cast<std::int32_t>(plan.pairs),
               .out = s.act_routed},
              s.act, stream);
    }
  }
  gemm.n = p.hidden;
  gemm.k = p.intermediate;
  gemm.part = 2;
  gemm.in_units = lies_in_units(WeightFormat::fp4, p.hidden, p.intermediate);
  gemm.x = s.act_routed;
  gemm.x_q8 = s.act;
  gemm.x_row = nullptr;
  gemm.x_stride = p.intermediate;
  gemm.y_bf16 = s.out;
  gemm.y_stride = p.hidden;
  launch_gemm(WeightKind::fp4, gemm, plan.routed, 1, stream);
}

void moe_sum(const MoeParams& p, void* scratch, cudaStream_t stream) {
  constexpr int kPart = kCombineThreads * kVector;
  start(combine_kernel, {.grid = dim3(p.num_rows, (p.hidden + kPart - 1) / kPart), .block = kCombineThreads}, stream, p,
        scratch_of(p, MoePlan(p), scratch));
}

}  // namespace deepinfer::cuda
