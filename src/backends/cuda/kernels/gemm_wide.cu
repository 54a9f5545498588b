// Products with warpgroup instructions (SM90), many columns. Blocks stay and take one item of work after the other: 128 weight rows (two
// warpgroups of 64) and a tile of up to 256 columns. A third warpgroup copies ahead, over the ends of items, into two rings: the weights of
// a step, and the activations of a group of 64 values; and it stores results that the others laid down. So the tensor cores wait for
// nothing but what begins and ends an item, and each code is turned into an operand once for all columns of a tile.
//
// What bounds it: the tensor cores take four cycles a column for a group of 64 values of both warpgroups, and with 256 columns little else
// counts. A warp needs about 150 instructions a group for FP8 codes and 100 for FP4, at six cycles each whatever it waits for, so that with
// half the columns its own pace counts. Neither the cache nor storing bounds it: a quarter of the activations' bytes or no stores gain a
// few percent.
#include <algorithm>

#include "backends/cuda/kernels/gemm_wide_results.cuh"

namespace deepinfer::cuda {
namespace hopper {
namespace {

constexpr int kMaxSharedBytes = 227 * 1024;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kConsumerRegisters = 232;
constexpr int kCopyRegisters = 40;  // fewer, and each step waits for what was spilled

/// The place in the ring of activations, and where its stage begins as products want it.
struct XPlace {
  RingPlace ring{};
  std::uint32_t matrix;  // in units of 16 bytes

  __device__ __forceinline__ void advance(const WideParams& p, std::uint32_t first) {
    ring.advance(p.stages);
    matrix = ring.stage == 0 ? first : matrix + p.columns * (kGroupValues * 2 / 16);
  }
};

/// What a warp keeps from item to item.
template <WeightKind kind>
struct WideWarp {
  const WideParams& p;
  std::uint32_t base;  // of shared memory
  int id;              // of the warp
  Places<kind> places;
  RingPlace weights{}, items{}, results{};
  XPlace x{.matrix = first_x()};

  __device__ __forceinline__ WideMemory memory() const { return WideMemory::at<kind>(base); }
  __device__ __forceinline__ std::uint32_t first_x() const { return memory().x.memory / 16; }
  __device__ __forceinline__ std::uint32_t weights_full() const { return memory().weights.full(weights.stage); }
  __device__ __forceinline__ std::uint32_t x_full() const { return memory().x.full(x.ring.stage); }
};

/// One chain of products: the sum over the steps [first, end). Pairs of instructions (units): while one runs, operands of the next are
/// made; more would take too many registers.
template <WeightKind kind, int kColumns>
struct Chain {
  static constexpr int kUnits = 2 * kStepGroups<kind>;

  WideWarp<kind>& warp;
  float (&sums)[kColumns / 2];
  unsigned a[2][2][4];
  int previous = -1;  // stage of activations that the group before the current one has not finished reading

  __device__ __forceinline__ void multiply_unit(int unit) {
    const std::uint64_t first = matrix_of(0, kColumns * 16) + warp.x.matrix + unit % 2 * 4 * kColumns;
    begin_products();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      cuda::multiply<kColumns>(sums, a[unit % 2][i], first + i * 2 * kColumns);  // two pieces of 8 values on, in units of 16 bytes
    }
    end_products();
  }

  __device__ __forceinline__ void multiply_step(int step) {
    wait_barriers(warp.weights_full(), warp.weights.parity, warp.x_full(), warp.x.ring.parity);
    ThreadCodes codes;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      load_unit<kind>(warp.memory().weights.memory + warp.weights.stage * kWeightBytes<kind>, warp.places, step, unit, codes);
      unpack_unit<kind>(codes, unit, warp.p.gemm.k & 1, a[unit % 2]);
      if (unit + 1 == kUnits) {
        release(warp.memory().weights, warp.weights.stage);  // all lanes have their codes
        warp.weights.advance(kWeightStages<kind>);
      }
      multiply_unit(unit);
      const int stage = warp.x.ring.stage;
      if (unit % 2 == 1) {
        warp.x.advance(warp.p, warp.first_x());
        if (unit + 1 < kUnits) {
          wait_barrier(warp.x_full(), warp.x.ring.parity);
        }
      }
      wait_products<1>();
      if (unit % 2 == 0) {
        if (previous >= 0) {
          release(warp.memory().x, previous);
        }
        previous = stage;
      }
    }
  }

  __device__ __forceinline__ void multiply(int first, int end) {
#pragma unroll
    for (float& sum : sums) {
      sum = 0;
    }
#pragma unroll 1
    for (int step = first; step < end; ++step) {
      multiply_step(step);
    }
    wait_products<0>();
    take_sums(sums);
    if (previous >= 0) {
      release(warp.memory().x, previous);
    }
  }
};

template <WeightKind kind, bool kSliced, int kColumns>
__device__ __forceinline__ void multiply_item(WideWarp<kind>& warp, const ItemPart& item) {
  const int steps = warp.p.gemm.k / kStepValues<kind>;
  float total[kColumns / 2];
  if constexpr (kSliced) {
    float sums[kColumns / 2];
#pragma unroll
    for (float& sum : total) {
      sum = -0.0F;  // what is added to it stays as it is
    }
    for (int slice = 0; slice < kSlices; ++slice) {
      Chain<kind, kColumns>{warp, sums}.multiply(slice_begin(slice, steps), slice_begin(slice + 1, steps));
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        total[i] += sums[i];
      }
    }
  } else {
    Chain<kind, kColumns>{warp, total}.multiply(0, steps);
  }
  const Ring results = warp.memory().results_of(warp.id / 4);
  if constexpr (kind == WeightKind::bf16) {
    store_own<kColumns>(warp.p.gemm, item, results.memory + warp.id % 4 * (kOwnColumns * kOwnColumnBytes), item.place + warp.id * 16,
                        total);
  } else {
    pass_results<kColumns>(results, warp.results, warp.id, total);
  }
}

template <WeightKind kind, bool kSliced, int kMost>
__device__ __forceinline__ void multiply_items(const WideParams& p, std::uint32_t base) {
  constexpr int kStep = wide_columns(1, kMost);
  const int id = static_cast<int>(threadIdx.x) / 32;
  WideWarp<kind> warp{p, base, id, Places<kind>(id * 16 + threadIdx.x % 32 / 4)};
  while (true) {
    const ItemPart item = next_item(warp.memory().items, warp.items);
    const int steps = item.columns / kStep;
    if (steps == 0) {
      return;
    }
    if constexpr (!kSliced) {  // with slices tiles have at least kLeastWideColumns
      switch (steps) {
        case 1:
          multiply_item<kind, kSliced, kStep>(warp, item);
          continue;
        case 2:
          multiply_item<kind, kSliced, 2 * kStep>(warp, item);
          continue;
        case 3:
          multiply_item<kind, kSliced, 3 * kStep>(warp, item);
          continue;
        default:
          break;
      }
    }
    if constexpr (kMost > 8 * kStep) {
      switch (steps) {
        case 9:
          multiply_item<kind, kSliced, 9 * kStep>(warp, item);
          continue;
        case 10:
          multiply_item<kind, kSliced, 10 * kStep>(warp, item);
          continue;
        default:
          break;
      }
    }
    switch (steps) {
      case 4:
        multiply_item<kind, kSliced, 4 * kStep>(warp, item);
        break;
      case 5:
        multiply_item<kind, kSliced, 5 * kStep>(warp, item);
        break;
      case 6:
        multiply_item<kind, kSliced, 6 * kStep>(warp, item);
        break;
      case 7:
        multiply_item<kind, kSliced, 7 * kStep>(warp, item);
        break;
      default:
        multiply_item<kind, kSliced, 8 * kStep>(warp, item);
    }
  }
}

#endif  // SM90

template <WeightKind kind, bool kSliced, int kMost>
__global__ __launch_bounds__(kThreads, 1) void wide_gemm_kernel(const __grid_constant__ WideParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) std::uint8_t shared[];
  const std::uint32_t base = shared_address(shared);
  const WideMemory memory = WideMemory::at<kind>(base);
  if (threadIdx.x == 0) {
    constexpr unsigned kWeightArrivals = kPieceThreads<kind> + (kind == WeightKind::bf16 ? 0 : 1);
    const auto init = [](const Ring& ring, int stages, unsigned full, unsigned empty) {
      for (int stage = 0; stage < stages; ++stage) {
        init_barrier(ring.full(stage), full);
        init_barrier(ring.empty(stage), empty);
      }
    };
    init(memory.weights, kWeightStages<kind>, kWeightArrivals, kConsumerWarps);
    init(memory.items, kItemStages, 1, kConsumerWarps + kCopyWarps - kCopyingWarps<kind>);
    init(memory.x, p.stages, 1, kConsumerWarps);
    for (int group = 0; group < kWarpgroups; ++group) {
      init(memory.results_of(group), kResultStages, 4, 1);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  if (p.gemm.experts != nullptr && !p.gemm.tiles_are_ready) {
    wait_for_inputs();
  }
  if (threadIdx.x < kConsumerWarps * 32) {
    take_registers<kConsumerRegisters>();
    wait_for_inputs();
    multiply_items<kind, kSliced, kMost>(p, base);
  } else {
    give_registers<kCopyRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32 - kConsumerWarps;
    if (warp < kCopyingWarps<kind>) {
      copy_items<kind>(p, memory);
    } else {
      wait_for_inputs();
      store_items(p.gemm, memory, warp - kCopyingWarps<kind>);
    }
  }
#endif
}

template <WeightKind kind>
void launch(const GemmParams& gemm, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  WideParams p{.gemm = gemm, .columns = tiles.columns, .tiles = tiles.count, .groups = groups, .row_tiles = (gemm.n + kRows - 1) / kRows};
  constexpr int kOthers = WideLayout<kind>::kXMemory;
  const int stage_bytes = p.columns * kGroupValues * 2;
  p.stages = std::min(kWideBarriers, (kMaxSharedBytes - kOthers) / stage_bytes);
  const auto kernel = is_sliced(gemm.experts != nullptr, groups, gemm.n) ? wide_gemm_kernel<kind, true, kFineColumns>
                      : p.columns <= kFineColumns                        ? wide_gemm_kernel<kind, false, kFineColumns>
                                                                         : wide_gemm_kernel<kind, false, kMostWideColumns>;
  start(kernel,
        {.grid = dim3(std::min(num_multiprocessors(), p.row_tiles * groups * p.tiles)),
         .block = kThreads,
         .shared_bytes = static_cast<std::size_t>(kOthers + p.stages * stage_bytes)},
        stream, p);
}

}  // namespace
}  // namespace hopper

void launch_wide_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  using hopper::launch;
  (kind == WeightKind::fp8   ? launch<WeightKind::fp8>
   : kind == WeightKind::fp4 ? launch<WeightKind::fp4>
                             : launch<WeightKind::bf16>)(p, tiles, groups, stream);
}

}  // namespace deepinfer::cuda
