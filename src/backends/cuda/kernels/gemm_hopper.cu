// Products with warpgroup instructions (SM90), few columns. A block takes 128 weight rows (two warpgroups of 64) and a tile of columns. A third
// warpgroup copies ahead into a ring of stages: 64 bytes of codes a row (128 of bf16), their scales, and the packed activations. The
// other two turn codes into registers while the tensor cores work on the group of 64 values before.
//
// Few blocks would leave the GPU idle: then the blocks of a cluster take one or two slices each, and these are added up in the memories of the
// cluster.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/gemm_operands.cuh"
#include "backends/cuda/kernels/hopper.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace hopper {
namespace {

/// Blocks on a multiprocessor. What the copying warps give up lets a consumer have more than its share of registers.
template <WeightKind kind, int kColumns>
constexpr int kBlocksAtOnce = kColumns == 64 && kind != WeightKind::fp8 ? 1 : kind != WeightKind::bf16 && kColumns == 8 ? 3 : 2;
/// Sets of operands in registers: with two, codes are turned while the tensor cores work; with one, another block's are.
template <WeightKind kind, int kColumns, bool kSliced>
constexpr int kOperandSets =
    kind != WeightKind::bf16 && (kColumns == 8 || (kColumns == 64 && (kSliced || kind == WeightKind::fp4))) ? 1 : 2;

/// Bytes of a block's results of one slice in shared memory.
template <int kColumns>
constexpr int kResultBytes = kColumns * kResultStride * 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Registers of a consumer and of a copying thread. The latter need 40 to put nothing aside in each step, which they would have to wait for;
// two sets of sums of 64 columns leave them less.
template <WeightKind kind, int kColumns, bool kSliced>
constexpr int kConsumerRegisters = kBlocksAtOnce<kind, kColumns> == 1   ? 232
                                   : kBlocksAtOnce<kind, kColumns> == 3 ? 64
                                   : kSliced && kColumns == 64          ? 104
                                                                        : 96;
template <WeightKind kind, int kColumns, bool kSliced>
constexpr int kCopyRegisters = kBlocksAtOnce<kind, kColumns> != 2 ? 40 : kSliced && kColumns == 64 ? 32 : 48;

// --- the warpgroups -----------------------------------------------------------------------------------------------

__device__ __forceinline__ void release(const Ring& ring, int stage) {
  if (threadIdx.x % 32 == 0) {
    arrive(ring.empty(stage));
  }
}

/// What a warp keeps between the slices of its block.
template <WeightKind kind, int kColumns, bool kSliced>
struct Warp {
  Ring ring;
  int stages;
  int zero;  // see unpack_group()
  Places<kind> places;
  RingPlace place{};
  unsigned a[kOperandSets<kind, kColumns, kSliced>][4][4];
};

/// One chain of products: the sum over the steps [first, end) for the warp's 16 rows.
template <WeightKind kind, int kColumns, bool kSliced>
__device__ __forceinline__ void multiply_chain(Warp<kind, kColumns, kSliced>& warp, int first, int end, float (&sums)[kColumns / 2]) {
  using S = Stage<kind, kColumns>;
  constexpr int kSets = kOperandSets<kind, kColumns, kSliced>;
#pragma unroll
  for (float& sum : sums) {
    sum = 0;
  }
  take_sums(sums);  // zeros are there before the first product begins
  int previous = -1;  // stage that the group before the current one has not finished reading
  const auto one_step = [&](int step, auto buffer) {
    constexpr int kBuffer = decltype(buffer)::value;
    wait_barrier(warp.ring.full(warp.place.stage), warp.place.parity);
    const std::uint32_t stage = warp.ring.memory + warp.place.stage * S::kBytes;
    ThreadCodes codes;
    load_unit<kind>(stage + S::kXBytes, warp.places, step, 0, codes);
    if constexpr (kind == WeightKind::bf16) {
      load_unit<kind>(stage + S::kXBytes, warp.places, step, 1, codes);
    }
#pragma unroll
    for (int group = 0; group < S::kGroups; ++group) {
      unsigned(&operand)[4][4] = warp.a[kSets == 1 ? 0 : S::kGroups == 1 ? kBuffer : group];
      if constexpr (kSets == 1) {
        wait_products<0>();
      }
      unpack_group<kind>(codes, group, warp.zero, operand);
      multiply_group<kColumns>(sums, operand, stage + group * (kColumns * kGroupValues * 2));
      if constexpr (kSets > 1) {
        wait_products<1>();
      }
      if (group == 0 && previous >= 0) {
        release(warp.ring, previous);
      }
    }
    previous = warp.place.stage;
    warp.place.advance(warp.stages);
  };
  for (int step = first; step < end; step += 2) {
    one_step(step, std::integral_constant<int, 0>{});
    if (step + 1 < end) {
      one_step(step + 1, std::integral_constant<int, 1>{});
    }
  }
  wait_products<0>();
  take_sums(sums);
  if (previous >= 0) {
    release(warp.ring, previous);
  }
}

/// Sum of the slices [first_slice, last_slice), or over all steps where there are none. In a cluster, which adds slices in their order, the
/// second of two stays apart in `second`.
template <WeightKind kind, int kColumns, bool kSliced>
__device__ __forceinline__ void multiply_rows(const HopperParams& p, const Ring& ring, int row, int steps, int first_slice, int last_slice,
                                              float (&total)[kColumns / 2], float (&second)[kColumns / 2]) {
  Warp<kind, kColumns, kSliced> warp{ring, p.stages, p.gemm.k & 1, Places<kind>(row)};
  if constexpr (kSliced) {
    for (int slice = first_slice; slice < last_slice; ++slice) {
      multiply_chain(warp, slice_begin(slice, steps), slice_begin(slice + 1, steps), second);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        total[i] = slice == first_slice ? second[i] : p.cluster > 1 ? total[i] : total[i] + second[i];
      }
    }
  } else {
    multiply_chain(warp, 0, steps, total);
  }
}

// --- results ------------------------------------------------------------------------------------------------------

/// Four floats of the shared memory of block `rank`.
__device__ __forceinline__ float4 load_remote(std::uint32_t address, unsigned rank) {
  float4 v;
  asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\nld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];\n}"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address), "r"(rank)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_four(const GemmParams& p, const GemmWork& work, int column, int n, const float (&value)[4]) {
  const std::int64_t place = (work.first_column + column) * p.y_stride + work.y_offset + n;
  if (p.y_bf16 != nullptr && p.bias == nullptr && n + 3 < p.n && place % 4 == 0) {
    uint2 packed;
    packed.x = to_bf16(value[0]).bits | static_cast<unsigned>(to_bf16(value[1]).bits) << 16;
    packed.y = to_bf16(value[2]).bits | static_cast<unsigned>(to_bf16(value[3]).bits) << 16;
    *reinterpret_cast<uint2*>(p.y_bf16 + place) = packed;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_result(p, work, column, n + i, value[i]);
  }
}

/// Leaves the warp's sums in `results` [column][row].
template <int kColumns>
__device__ __forceinline__ void leave_results(std::uint32_t results, int row, const float (&total)[kColumns / 2]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = j * 8 + t * 2 + i % 2;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(results + (column * kResultStride + row + i / 2 * 8) * 4), "f"(total[j * 4 + i]) : "memory");
    }
  }
}

/// Rounds and stores the results of the block, or of its part of the columns' quarters when a cluster has the slices.
template <int kColumns>
__device__ __forceinline__ void store_results(const HopperParams& p, const GemmWork& work, std::uint32_t results, int tile_row, int rank,
                                              int thread, int threads) {
  const int count = min(kColumns, work.num_columns) * (kRows / 4);
  const bool one_each = p.cluster == kSlices;
  for (int i = rank * threads + thread; i < count; i += threads * p.cluster) {
    const int column = i / (kRows / 4);
    const int row = i % (kRows / 4) * 4;
    const std::uint32_t address = results + (column * kResultStride + row) * 4;
    float4 sum = load_remote(address, 0);
    if (p.cluster > 1) {
#pragma unroll
      for (unsigned slice = 1; slice < kSlices; ++slice) {
        const float4 part = one_each ? load_remote(address, slice) : load_remote(address + slice % 2 * kResultBytes<kColumns>, slice / 2);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
    }
    store_four(p.gemm, work, column, tile_row + row, {sum.x, sum.y, sum.z, sum.w});
  }
}

#endif  // SM90

template <WeightKind kind, int kColumns, bool kSliced>
__global__ __launch_bounds__(kThreads, kBlocksAtOnce<kind, kColumns>) void warpgroup_gemm_kernel(const __grid_constant__ HopperParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Stage<kind, kColumns>;
  extern __shared__ __align__(128) std::uint8_t memory[];
  const GemmParams& gemm = p.gemm;
  const int warp = threadIdx.x / 32;
  const int rank = p.cluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int tile_row = static_cast<int>(blockIdx.x) / p.cluster * kRows;
  if (gemm.experts != nullptr && !gemm.tiles_are_ready) {
    wait_for_inputs();
  }
  GemmWork work;
  if (!find_work(gemm, blockIdx.y, blockIdx.z, kColumns, work)) {  // nor for the others of the cluster
    wait_for_inputs();
    return;
  }
  const Ring ring{shared_address(memory), shared_address(memory) + kBarrierBytes};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < p.stages; ++stage) {
      init_barrier(ring.full(stage), kArrivals<kind>);
      init_barrier(ring.empty(stage), kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const int steps = gemm.k / S::kValues;
  const int first_slice = rank * (kSlices / p.cluster);
  const int last_slice = first_slice + kSlices / p.cluster;
  const std::uint32_t results = ring.memory;  // over the ring, once nothing reads it
  if (warp >= kConsumerWarps) {
    give_registers<kCopyRegisters<kind, kColumns, kSliced>>();
    copy_all<kind, kColumns>(p, work, ring, tile_row, slice_begin(first_slice, steps), slice_begin(last_slice, steps));
  } else {
    take_registers<kConsumerRegisters<kind, kColumns, kSliced>>();
    wait_for_inputs();
    const int row = warp * 16 + threadIdx.x % 32 / 4;
    float total[kColumns / 2];
    float second[kColumns / 2];
    multiply_rows<kind, kColumns, kSliced>(p, ring, row, steps, first_slice, last_slice, total, second);
    asm volatile("bar.sync 1, 256;" ::: "memory");
    leave_results<kColumns>(results, row, total);
    if (kSliced && p.cluster == kSlices / 2) {
      leave_results<kColumns>(results + kResultBytes<kColumns>, row, second);
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (p.cluster == 1) {
      store_results<kColumns>(p, work, results, tile_row, rank, threadIdx.x, kConsumerWarps * 32);
    }
  }
  if (p.cluster > 1) {
    cluster_barrier();
    store_results<kColumns>(p, work, results, tile_row, rank, threadIdx.x, kThreads);
    cluster_arrive();  // no block leaves while others read its memory
    cluster_wait();
  }
#endif
}

// --- launches -----------------------------------------------------------------------------------------------------

constexpr int kFewBlocks = 120;               // below, slices go to a cluster
constexpr int kMaxSharedBytes = 227 * 1024;   // of a block on SM90

/// Blocks that share the slices of `blocks` tiles: a slice each, or two where that many blocks would not run at once.
int cluster_of(int blocks, int blocks_at_once) {
  return blocks >= kFewBlocks ? 1 : blocks * kSlices <= blocks_at_once * num_multiprocessors() ? kSlices : kSlices / 2;
}

template <WeightKind kind, int kColumns, bool kSliced>
void launch_columns(const GemmParams& gemm, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  using S = Stage<kind, kColumns>;
  const int row_tiles = (gemm.n + kRows - 1) / kRows;
  HopperParams p{.gemm = gemm};
  int blocks = row_tiles * tiles.count * groups;
  p.cluster = kSliced && gemm.k / S::kValues >= kSlices ? cluster_of(blocks, kBlocksAtOnce<kind, kColumns>) : 1;
  blocks *= p.cluster;
  // Few blocks take the memory of more, so that they spread evenly however early they start.
  const int at_once = std::clamp((blocks + num_multiprocessors() - 1) / num_multiprocessors(), 1, kBlocksAtOnce<kind, kColumns>);
  const int limit = (kMaxSharedBytes + 1024) / at_once - 1024 - kBarrierBytes;  // each block takes 1 KB more than it asks for
  p.stages = std::min(kMaxStages, limit / S::kBytes);
  const int ring_bytes = std::max(p.stages * S::kBytes, (p.cluster == kSlices / 2 ? 2 : 1) * kResultBytes<kColumns>);
  start(warpgroup_gemm_kernel<kind, kColumns, kSliced>,
        {.grid = dim3(row_tiles * p.cluster, tiles.count, groups),
         .block = kThreads,
         .shared_bytes = static_cast<std::size_t>(kBarrierBytes + ring_bytes),
         .cluster = p.cluster},
        stream, p);
}

template <WeightKind kind, bool kSliced>
void launch_kind(const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  const auto launch = tiles.columns == 8    ? launch_columns<kind, 8, kSliced>
                      : tiles.columns == 16 ? launch_columns<kind, 16, kSliced>
                      : tiles.columns == 32 ? launch_columns<kind, 32, kSliced>
                                            : launch_columns<kind, 64, kSliced>;
  launch(p, tiles, groups, stream);
}

}  // namespace
}  // namespace hopper

bool takes_warpgroups(WeightKind kind, int n, int k) {
  // Codes in whole units; slices of bf16 in whole stages.
  return runs_warpgroups() && (kind == WeightKind::bf16 ? k % 512 == 0 : k % 128 == 0 && n % kUnitRows == 0);
}

void launch_warpgroup_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  using hopper::launch_kind;
  const bool sliced = is_sliced(p.experts != nullptr, groups, p.n);
  const auto launch = kind == WeightKind::fp8   ? (sliced ? launch_kind<WeightKind::fp8, true> : launch_kind<WeightKind::fp8, false>)
                      : kind == WeightKind::fp4 ? (sliced ? launch_kind<WeightKind::fp4, true> : launch_kind<WeightKind::fp4, false>)
                                                : (sliced ? launch_kind<WeightKind::bf16, true> : launch_kind<WeightKind::bf16, false>);
  launch(p, tiles, groups, stream);
}

}  // namespace deepinfer::cuda
