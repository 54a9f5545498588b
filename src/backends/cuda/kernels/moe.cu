// Experts (docs/spec/model.md 5.5). Pairs (row, choice) are sorted by expert, so that each expert is one product over its columns.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/cuda/kernels/activation.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/moe_scratch.cuh"
#include "backends/cuda/kernels/moe_sort.cuh"
#include "backends/cuda/kernels/packed_order.cuh"
#include "backends/cuda/kernels/row_vectors.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kActivateThreads = 96;  // of the 288 that an intermediate row of the released model takes

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
  if (plan.pairs <= kFewPairs) {
    start(sort_few_pairs_kernel, {.grid = dim3(1), .block = kFewPairs}, stream, p, s, plan.routed);
  } else {
    const auto most = static_cast<unsigned>(std::clamp<std::int64_t>(plan.pairs / kSortThreads, 1, kMostClusterBlocks));
    const auto blocks = static_cast<int>(std::bit_floor(most));
    start(sort_pairs_kernel, {.grid = dim3(blocks), .block = kSortThreads, .cluster = blocks}, stream, p, s, plan.routed);
  }
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
