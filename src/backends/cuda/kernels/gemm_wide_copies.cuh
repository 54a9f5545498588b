// Items of work of the wide products (gemm_wide.cu), the rings in shared memory through which a block's warps pass them, and the warps that
// copy.
#pragma once

#include "backends/cuda/kernels/gemm_operands.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda::hopper {

inline constexpr int kWideBarriers = 8;  // of a ring, at most
inline constexpr int kWideBarrierBytes = kWideBarriers * 16;
inline constexpr int kWarpgroups = kConsumerWarps / 4;
/// Warps of the third warpgroup that copy; the others store results.
template <WeightKind kind>
constexpr int kCopyingWarps = kind == WeightKind::bf16 ? kCopyWarps : kCopyWarps - kWarpgroups;
template <WeightKind kind>
constexpr int kWeightStages = kind == WeightKind::fp8 ? 6 : 4;

// Results of a warpgroup on their way out: stages of some columns of its 64 rows, a gap behind each column so that neighbours meet other
// banks.
inline constexpr int kResultRows = 64;
inline constexpr int kResultStages = 5;
inline constexpr int kResultStageBytes = 32 * (kResultRows * 2 + 16);
inline constexpr int kItemStages = 4;
inline constexpr int kItemBytes = 32;

struct WideParams {
  GemmParams gemm;
  std::int32_t columns = 0;  // of a tile; experts: at most
  std::int32_t tiles = 0;    // experts: as many as num_tiles says
  std::int32_t groups = 0;
  std::int32_t row_tiles = 0;
  std::int32_t stages = 0;  // of activations
};

/// Where a block's rings begin in shared memory; activations come last.
template <WeightKind kind>
struct WideLayout {
  static constexpr int kWeights = 0, kItems = kWideBarrierBytes, kX = 2 * kWideBarrierBytes, kResults = 3 * kWideBarrierBytes;  // barriers
  static constexpr int kItemMemory = (3 + kWarpgroups) * kWideBarrierBytes;
  static constexpr int kResultMemory = kItemMemory + kItemStages * kItemBytes;
  static constexpr int kWeightMemory = kResultMemory + kWarpgroups * kResultStages * kResultStageBytes;
  static constexpr int kXMemory = kWeightMemory + kWeightStages<kind> * kWeightBytes<kind>;
  static_assert(kXMemory % 128 == 0 && kWeightMemory % 128 == 0);
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// One item: rows are next to each other, so that those at work share their activations.
struct Item {
  int group, row;  // row: first of the tile
  int4 tile;       // as in GemmParams::tiles
  int columns;     // of the products
};

/// False: there is no such item.
__device__ __forceinline__ bool find_item(const WideParams& p, int index, Item& item) {
  const int rest = index / p.row_tiles;
  const int tile = rest / p.groups;
  item.row = index % p.row_tiles * kRows;
  item.group = rest % p.groups;
  if (p.gemm.experts == nullptr) {
    item.tile = make_int4(0, tile * p.columns, min(p.columns, p.gemm.num_columns - tile * p.columns), tile * p.columns);
    item.columns = p.columns;
    return tile < p.tiles;
  }
  if (tile >= __ldcg(p.gemm.num_tiles)) {
    return false;
  }
  item.tile = __ldcg(p.gemm.tiles + tile);
  item.columns = wide_columns(item.tile.z, p.columns);
  return true;
}

/// What reads results and multiplies needs to know of an item; it comes from the thread that copies activations, which is ahead.
struct ItemPart {
  int columns;  // of the products; 0: there is no item left
  int num_columns, first_column;
  int place;  // of the tile's first row among the rows of all groups
};

struct WideMemory {
  Ring weights, items, x, results;  // results: of the first warpgroup
  template <WeightKind kind>
  __device__ __forceinline__ static WideMemory at(std::uint32_t base) {
    using L = WideLayout<kind>;
    return {.weights = {base + L::kWeights, base + L::kWeightMemory},
            .items = {base + L::kItems, base + L::kItemMemory},
            .x = {base + L::kX, base + L::kXMemory},
            .results = {base + L::kResults, base + L::kResultMemory}};
  }
  __device__ __forceinline__ Ring results_of(int group) const {
    return {results.barriers + group * kWideBarrierBytes, results.memory + group * kResultStages * kResultStageBytes};
  }
};

__device__ __forceinline__ void release(const Ring& ring, int stage) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    arrive(ring.empty(stage));
  }
}

/// The next item of a warp that multiplies or stores.
__device__ __forceinline__ ItemPart next_item(const Ring& items, RingPlace& place) {
  wait_barrier(items.full(place.stage), place.parity);
  ItemPart out;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.columns), "=r"(out.num_columns), "=r"(out.first_column), "=r"(out.place)
               : "r"(items.memory + place.stage * kItemBytes)
               : "memory");
  release(items, place.stage);
  place.advance(kItemStages);
  return out;
}

/// Tells the block's other warps of an item; one thread.
__device__ __forceinline__ void tell_item(const Ring& items, RingPlace& place, const ItemPart& item) {
  wait_barrier(items.empty(place.stage), place.parity ^ 1U);
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(items.memory + place.stage * kItemBytes), "r"(item.columns),
               "r"(item.num_columns), "r"(item.first_column), "r"(item.place)
               : "memory");
  arrive(items.full(place.stage));
  place.advance(kItemStages);
}

// --- the copying warps --------------------------------------------------------------------------------------------
// Codes: one warp copies weights, one thread of another activations, so that neither waits for the other's ring. bf16: all four warps copy
// weights, and one thread activations in between.

/// Activations of one item after the other, group by group; one thread.
struct XCopies {
  const WideParams& p;
  const WideMemory& memory;
  RingPlace place{}, item_place{};
  const bf16* source = nullptr;
  unsigned group_bytes = 0;

  __device__ __forceinline__ void begin(const Item& item) {
    source = p.gemm.x + item.group * p.gemm.x_group + static_cast<std::int64_t>(item.tile.w) * p.gemm.k;
    group_bytes = item.columns * kGroupValues * 2;
    tell_item(memory.items, item_place, {item.columns, item.tile.z, item.tile.y, item.group * p.gemm.n + item.row});
  }
  __device__ __forceinline__ void end() { tell_item(memory.items, item_place, {0, 0, 0, 0}); }
  __device__ __forceinline__ void copy_group() {
    wait_barrier(memory.x.empty(place.stage), place.parity ^ 1U);
    expect_bytes(memory.x.full(place.stage), group_bytes);
    copy_bulk(memory.x.memory + place.stage * (p.columns * kGroupValues * 2), source, group_bytes, memory.x.full(place.stage));
    source += group_bytes / 2;
    place.advance(p.stages);
  }
};

/// Weights of one item after the other, step by step; what a thread copies.
template <WeightKind kind>
struct WeightCopies {
  const GemmParams& gemm;
  const Ring& ring;
  RingPlace place{};
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  int last_row = 0;  // of the tile that there is; bf16

  __device__ __forceinline__ void begin(const WideParams& p, int index, const Item& item) {
    GemmWork work;
    find_work(gemm, index / p.row_tiles / p.groups, item.group, p.columns, work);
    const std::int64_t weight_row = work.weight_row + item.row;
    codes = work.codes + weight_row * row_bytes<kind>(gemm.k) + (kind == WeightKind::bf16 ? threadIdx.x % kRowPieces * 16 : 0);
    last_row = gemm.n - 1 - item.row;
    const int per_row = gemm.k / kWeightBlock;
    scales = kind == WeightKind::fp4 ? work.scales + weight_row * per_row
                                     : work.scales + (weight_row / kWeightBlock + threadIdx.x % 32) * per_row;
  }
  __device__ __forceinline__ void copy_step(int step) {
    const std::uint32_t barrier = ring.full(place.stage);
    const std::uint32_t to = ring.memory + place.stage * kWeightBytes<kind>;
    if constexpr (kind == WeightKind::bf16) {
      copy_row_pieces(to);
      arrive_after_copies(barrier);
    } else {
      if (threadIdx.x % 32 == 0) {
        expect_bytes(barrier, kUnitsBytes<kind>);
        copy_bulk(to, codes, kUnitBytes, barrier);
        if constexpr (kind == WeightKind::fp4) {
          copy_bulk(to + kCodeBytes<kind>, scales, kUnitScaleBytes, barrier);
          scales += kUnitScaleBytes;
        }
        codes += kUnitBytes;
      }
      if constexpr (kind == WeightKind::fp8) {
        if (threadIdx.x % 32 < kRows / kWeightBlock) {
          copy_4(to + kCodeBytes<kind> + threadIdx.x % 32 * 4, scales + step / 2 * 4);
        }
        arrive_after_copies(barrier);
      }
    }
    place.advance(kWeightStages<kind>);
  }

 private:
  static constexpr int kRowPieces = kRowBytes<WeightKind::bf16> / 16;

  /// bf16: a piece of every sixteenth row. Where those lie is worked out anew in every step, two at a time: there are no registers to keep
  /// more.
  __device__ __forceinline__ void copy_row_pieces(std::uint32_t to) {
    constexpr int kThreadRows = kCopyWarps * 32 / kRowPieces;  // rows the warps copy at once
    int row = static_cast<int>(threadIdx.x - kConsumerWarps * 32) / kRowPieces;
    asm volatile("" : "+r"(row));
    const int bytes = static_cast<int>(row_bytes<WeightKind::bf16>(gemm.k));
    to += piece_place<WeightKind::bf16>(row, threadIdx.x % kRowPieces);
#pragma unroll 2
    for (int i = 0; i < kRows / kThreadRows; ++i) {
      copy_16(to + i * kThreadRows * kRowBytes<WeightKind::bf16>, codes + min(row + i * kThreadRows, last_row) * bytes);
    }
    codes += kRowBytes<WeightKind::bf16>;
  }
};

template <WeightKind kind>
__device__ void copy_items(const WideParams& p, const WideMemory& memory) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - kConsumerWarps;
  const int steps = p.gemm.k / kStepValues<kind>;
  constexpr bool kTogether = kind == WeightKind::bf16;
  const bool copies_x = threadIdx.x == (kConsumerWarps + (kTogether ? 0 : 1)) * 32;
  XCopies x{p, memory};
  Item item;
  if (!kTogether && warp > 0) {
    wait_for_inputs();
    if (copies_x) {
      for (int index = blockIdx.x; find_item(p, index, item); index += static_cast<int>(gridDim.x)) {
        x.begin(item);
        for (int group = 0; group < steps * kStepGroups<kind>; ++group) {
          x.copy_group();
        }
      }
      x.end();
    }
    return;
  }
  WeightCopies<kind> weights{p.gemm, memory.weights};
  int ahead = 0;  // steps of the first item whose weights did not wait for the kernel before
  for (int index = blockIdx.x; find_item(p, index, item); index += static_cast<int>(gridDim.x)) {
    weights.begin(p, index, item);
    if (index == static_cast<int>(blockIdx.x)) {
      for (; ahead < min(steps, kWeightStages<kind>); ++ahead) {
        weights.copy_step(ahead);
      }
      wait_for_inputs();
    }
    if (kTogether && copies_x) {
      x.begin(item);
    }
    for (int step = 0; step < steps; ++step) {
      if (ahead > 0) {
        --ahead;
      } else {
        wait_barrier(memory.weights.empty(weights.place.stage), weights.place.parity ^ 1U);
        weights.copy_step(step);
      }
      if (kTogether) {
        if (copies_x) {
          x.copy_group();
        }
        __syncwarp();
      }
    }
  }
  if (kTogether && copies_x) {
    x.end();
  }
}

#endif  // SM90

}  // namespace deepinfer::cuda::hopper
