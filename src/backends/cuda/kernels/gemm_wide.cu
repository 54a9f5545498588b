// Products with warpgroup instructions (SM90), many columns. Blocks stay and take one item of work after the other: 128 weight rows (two
// warpgroups of 64) and a tile of up to 256 columns. A third warpgroup copies ahead, over the ends of items, into two rings: the weights of
// a step, and the activations of a group of 64 values. So the tensor cores wait for nothing but the results' way out, and each code is
// turned into an operand once for all columns of a tile.
//
// What bounds it: a multiprocessor takes four cycles a column for a group of 64 values of both warpgroups, reads and fills
// shared memory at about 100 of 128 bytes a cycle meanwhile, and turns the group's codes in some 450 cycles of its instruction slots.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/gemm_operands.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace hopper {
namespace {

constexpr int kWideBarriers = 8;  // of a ring, at most
constexpr int kWideBarrierBytes = 2 * kWideBarriers * 16;
constexpr int kStagedColumns = 64;  // of results that a warp lays down before it stores them
constexpr int kStagedBytes = kStagedColumns * 16 * 2;
constexpr int kResultBytes = kConsumerWarps * kStagedBytes;
constexpr int kMaxSharedBytes = 227 * 1024;
template <WeightKind kind>
constexpr int kWeightStages = kind == WeightKind::fp8 ? 6 : 4;

struct WideParams {
  GemmParams gemm;
  std::int32_t columns = 0;  // of a tile; experts: at most
  std::int32_t tiles = 0;    // experts: as many as num_tiles says
  std::int32_t groups = 0;
  std::int32_t row_tiles = 0;
  std::int32_t stages = 0;  // of activations
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kConsumerRegisters = 232;
constexpr int kCopyRegisters = 40;  // fewer, and each step waits for what was spilled

/// One item: rows are next to each other, so that those at work share their activations.
struct Item {
  int group, row;   // row: first of the tile
  int4 tile;        // as in GemmParams::tiles
  int columns;      // of the products
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
  item.columns = wide_columns(item.tile.z);
  return true;
}

/// Addresses of one block.
struct WideMemory {
  Ring weights, x;
  std::uint32_t results;
};

// --- the copying warps --------------------------------------------------------------------------------------------
// Codes: one warp copies weights, one thread of another activations, so that neither waits for the other's ring. bf16: all four warps copy
// weights, and one thread activations in between.

/// Activations of one item after the other, group by group; one thread.
template <WeightKind kind>
struct XCopies {
  const WideParams& p;
  const Ring& ring;
  RingPlace place{};
  const bf16* source = nullptr;
  unsigned group_bytes = 0;

  __device__ __forceinline__ void begin(const Item& item) {
    source = p.gemm.x + item.group * p.gemm.x_group + static_cast<std::int64_t>(item.tile.w) * p.gemm.k;
    group_bytes = item.columns * kGroupValues * 2;
  }
  __device__ __forceinline__ void copy_group() {
    wait_barrier(ring.empty(place.stage), place.parity ^ 1U);
    expect_bytes(ring.full(place.stage), group_bytes);
    copy_bulk(ring.memory + place.stage * (p.columns * kGroupValues * 2), source, group_bytes, ring.full(place.stage));
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
  GemmWork work{};  // bf16
  int row = 0;

  __device__ __forceinline__ void begin(const WideParams& p, int index, const Item& item) {
    find_work(gemm, index / p.row_tiles / p.groups, item.group, p.columns, work);
    row = item.row;
    const std::int64_t weight_row = work.weight_row + item.row;
    codes = work.codes + weight_row * row_bytes<kind>(gemm.k);
    const int per_row = gemm.k / kWeightBlock;
    scales = kind == WeightKind::fp4 ? work.scales + weight_row * per_row
                                     : work.scales + (weight_row / kWeightBlock + threadIdx.x % 32) * per_row;
  }
  __device__ __forceinline__ void copy_step(int step) {
    const std::uint32_t barrier = ring.full(place.stage);
    const std::uint32_t to = ring.memory + place.stage * kWeightBytes<kind>;
    if constexpr (kind == WeightKind::bf16) {
      copy_weights_bf16(gemm, work, row, step, to, barrier);
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
};

template <WeightKind kind>
__device__ void copy_items(const WideParams& p, const WideMemory& memory) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - kConsumerWarps;
  const int steps = p.gemm.k / kStepValues<kind>;
  constexpr bool kTogether = kind == WeightKind::bf16;
  const bool copies_x = threadIdx.x == (kConsumerWarps + (kTogether ? 0 : 1)) * 32;
  XCopies<kind> x{p, memory.x};
  Item item;
  if (!kTogether && warp > 0) {
    wait_for_inputs();
    for (int index = blockIdx.x; copies_x && find_item(p, index, item); index += static_cast<int>(gridDim.x)) {
      x.begin(item);
      for (int group = 0; group < steps * kStepGroups<kind>; ++group) {
        x.copy_group();
      }
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
}

// --- the warpgroups -----------------------------------------------------------------------------------------------

/// What a warp keeps from item to item.
template <WeightKind kind>
struct WideWarp {
  const WideParams& p;
  const WideMemory& memory;
  Places<kind> places;
  RingPlace weights{};
  RingPlace x{};
};

__device__ __forceinline__ void release(const Ring& ring, int stage) {
  if (threadIdx.x % 32 == 0) {
    arrive(ring.empty(stage));
  }
}

/// One chain of products: the sum over the steps [first, end). Two instructions at a time: while they run, the operands of the next two are
/// made; four would take too many registers.
template <WeightKind kind, int kColumns>
__device__ __forceinline__ void multiply_chain(WideWarp<kind>& warp, int first, int end, float (&sums)[kColumns / 2]) {
  constexpr int kUnits = 2 * kStepGroups<kind>;
  unsigned a[2][2][4];
#pragma unroll
  for (float& sum : sums) {
    sum = 0;
  }
  int previous = -1;  // stage of activations that the group before the current one has not finished reading
#pragma unroll 1
  for (int step = first; step < end; ++step) {
    wait_barrier(warp.memory.weights.full(warp.weights.stage), warp.weights.parity);
    ThreadCodes codes;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      load_unit<kind>(warp.memory.weights.memory + warp.weights.stage * kWeightBytes<kind>, warp.places, step, unit, codes);
      unpack_unit<kind>(codes, unit, warp.p.gemm.k & 1, a[unit % 2]);
      if (unit + 1 == kUnits) {
        __syncwarp();  // all lanes have their codes
        release(warp.memory.weights, warp.weights.stage);
      }
      if (unit % 2 == 0) {
        wait_barrier(warp.memory.x.full(warp.x.stage), warp.x.parity);
      }
      multiply_unit<kColumns>(sums, a[unit % 2], warp.memory.x.memory + warp.x.stage * (warp.p.columns * kGroupValues * 2), unit);
      wait_products<1>();
      if (unit % 2 == 0) {
        if (previous >= 0) {
          release(warp.memory.x, previous);
        }
        previous = warp.x.stage;
      } else {
        warp.x.advance(warp.p.stages);
      }
    }
    warp.weights.advance(kWeightStages<kind>);
  }
  wait_products<0>();
  take_sums(sums);
  if (previous >= 0) {
    release(warp.memory.x, previous);
  }
}

// --- results ------------------------------------------------------------------------------------------------------

/// Two neighbouring 16 x 8 tiles of bf16 to columns of 16 rows: `to` is the first column's, for this lane's part of the four 8 x 8 tiles.
__device__ __forceinline__ void lay_down(std::uint32_t to, const unsigned (&tiles)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]),
               "r"(tiles[3])
               : "memory");
}

__device__ __forceinline__ unsigned pair_of(float low, float high) {
  return to_bf16(low).bits | static_cast<unsigned>(to_bf16(high).bits) << 16;
}

/// bf16 in rows of 16 bytes; `row`: the warp's first. Each lane stores eight rows of a column.
template <int kColumns>
__device__ __forceinline__ void store_vectors(const GemmParams& p, const GemmWork& work, std::uint32_t staged, int row,
                                              const float (&sums)[kColumns / 2]) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t own = staged + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16;
#pragma unroll
  for (int first = 0; first < kColumns; first += kStagedColumns) {
    __syncwarp();
#pragma unroll
    for (int column = first; column < min(first + kStagedColumns, kColumns); column += 16) {
      const float* c = sums + column / 2;
      lay_down(own + (column - first) * 32,
               {pair_of(c[0], c[1]), pair_of(c[2], c[3]), pair_of(c[4], c[5]), pair_of(c[6], c[7])});
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < min(kStagedColumns, kColumns - first) / 16; ++i) {
      const int column = i * 16 + lane / 2;
      unsigned words[4];
      load_16(staged + column * 32 + lane % 2 * 16, words);
      if (first + column < work.num_columns) {
        bf16* y = p.y_bf16 + (work.first_column + first + column) * p.y_stride + work.y_offset + row + lane % 2 * 8;
        *reinterpret_cast<uint4*>(y) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void store_single(const GemmParams& p, const GemmWork& work, int row, const float (&sums)[kColumns / 2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_result(p, work, j * 8 + lane % 4 * 2 + i % 2, row + lane / 4 + i / 2 * 8, sums[j * 4 + i]);
    }
  }
}

template <WeightKind kind, bool kSliced, int kColumns>
__device__ __forceinline__ void multiply_item(WideWarp<kind>& warp, const GemmWork& work, int row) {
  const GemmParams& gemm = warp.p.gemm;
  const int steps = gemm.k / kStepValues<kind>;
  float total[kColumns / 2];
  if constexpr (kSliced) {
    float sums[kColumns / 2];
#pragma unroll
    for (float& sum : total) {
      sum = -0.0F;  // what is added to it stays as it is
    }
    for (int slice = 0; slice < kSlices; ++slice) {
      multiply_chain<kind, kColumns>(warp, slice_begin(slice, steps), slice_begin(slice + 1, steps), sums);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        total[i] += sums[i];
      }
    }
  } else {
    multiply_chain<kind, kColumns>(warp, 0, steps, total);
  }
  const bool in_vectors = gemm.y_bf16 != nullptr && gemm.bias == nullptr && gemm.n % kRows == 0 && gemm.y_stride % 8 == 0 && work.y_offset % 8 == 0;
  if (in_vectors) {
    store_vectors<kColumns>(gemm, work, warp.memory.results + threadIdx.x / 32 * kStagedBytes, row, total);
  } else {
    store_single<kColumns>(gemm, work, row, total);
  }
}

#endif  // SM90

template <WeightKind kind, bool kSliced>
__global__ __launch_bounds__(kThreads, 1) void wide_gemm_kernel(const __grid_constant__ WideParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) std::uint8_t memory[];
  const std::uint32_t base = shared_address(memory);
  const std::uint32_t results = base + 2 * kWideBarrierBytes;
  const WideMemory places{.weights = {base, results + kResultBytes},
                          .x = {base + kWideBarrierBytes, results + kResultBytes + kWeightStages<kind> * kWeightBytes<kind>},
                          .results = results};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kWeightStages<kind>; ++stage) {
      init_barrier(places.weights.full(stage), kPieceThreads<kind> + (kind == WeightKind::bf16 ? 0 : 1));
      init_barrier(places.weights.empty(stage), kConsumerWarps);
    }
    for (int stage = 0; stage < p.stages; ++stage) {
      init_barrier(places.x.full(stage), 1);
      init_barrier(places.x.empty(stage), kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  if (p.gemm.experts != nullptr && !p.gemm.tiles_are_ready) {
    wait_for_inputs();
  }
  if (threadIdx.x >= kConsumerWarps * 32) {
    give_registers<kCopyRegisters>();
    copy_items<kind>(p, places);
  } else {
    take_registers<kConsumerRegisters>();
    wait_for_inputs();
    const int row = static_cast<int>(threadIdx.x) / 32 * 16;
    WideWarp<kind> warp{p, places, Places<kind>(row + threadIdx.x % 32 / 4)};
    Item item;
    for (int index = blockIdx.x; find_item(p, index, item); index += static_cast<int>(gridDim.x)) {
      const GemmWork work{.first_column = item.tile.y, .num_columns = item.tile.z, .y_offset = static_cast<std::int64_t>(item.group) * p.gemm.n};
      switch (item.columns / kWideStep) {
        case 1: multiply_item<kind, kSliced, 32>(warp, work, item.row + row); break;
        case 2: multiply_item<kind, kSliced, 64>(warp, work, item.row + row); break;
        case 3: multiply_item<kind, kSliced, 96>(warp, work, item.row + row); break;
        case 4: multiply_item<kind, kSliced, 128>(warp, work, item.row + row); break;
        default:
          if constexpr (!kSliced) {
            switch (item.columns / kWideStep) {
              case 5: multiply_item<kind, kSliced, 160>(warp, work, item.row + row); break;
              case 6: multiply_item<kind, kSliced, 192>(warp, work, item.row + row); break;
              case 7: multiply_item<kind, kSliced, 224>(warp, work, item.row + row); break;
              default: multiply_item<kind, kSliced, 256>(warp, work, item.row + row);
            }
          }
      }
    }
  }
#endif
}

template <WeightKind kind, bool kSliced>
void launch(const GemmParams& gemm, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  WideParams p{.gemm = gemm, .columns = tiles.columns, .tiles = tiles.count, .groups = groups, .row_tiles = (gemm.n + kRows - 1) / kRows};
  const int others = 2 * kWideBarrierBytes + kResultBytes + kWeightStages<kind> * kWeightBytes<kind>;
  const int stage_bytes = p.columns * kGroupValues * 2;
  p.stages = std::min(kWideBarriers, (kMaxSharedBytes - others) / stage_bytes);
  start(wide_gemm_kernel<kind, kSliced>,
        {.grid = dim3(std::min(num_multiprocessors(), p.row_tiles * groups * p.tiles)),
         .block = kThreads,
         .shared_bytes = static_cast<std::size_t>(others + p.stages * stage_bytes)},
        stream, p);
}

}  // namespace
}  // namespace hopper

void launch_wide_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  const bool sliced = is_sliced(p.experts != nullptr, groups, p.n);
  const auto launch = kind == WeightKind::fp8   ? (sliced ? hopper::launch<WeightKind::fp8, true> : hopper::launch<WeightKind::fp8, false>)
                      : kind == WeightKind::fp4 ? (sliced ? hopper::launch<WeightKind::fp4, true> : hopper::launch<WeightKind::fp4, false>)
                                                : (sliced ? hopper::launch<WeightKind::bf16, true> : hopper::launch<WeightKind::bf16, false>);
  launch(p, tiles, groups, stream);
}

}  // namespace deepinfer::cuda
