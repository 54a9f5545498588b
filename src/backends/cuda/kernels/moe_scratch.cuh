// How the experts' products of one call are cut, and the device memory between its kernels.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/gemm.h"
#include "ops/ops.h"

namespace deepinfer::cuda {

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
inline MoeScratch lay_out(const MoeParams& p, const MoePlan& plan, std::uint8_t* base, std::size_t& end) {
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

}  // namespace deepinfer::cuda
