// Products with warpgroup instructions (SM90). A block takes 128 weight rows (two warpgroups of 64) and a tile of columns. A third
// warpgroup copies ahead into a ring of stages: 64 bytes of codes a row (128 of bf16), their scales, and the packed activations. The
// other two turn codes into registers while the tensor cores work on the group of 64 values before.
//
// Few blocks would leave the GPU idle: then a cluster of kSlices blocks takes one slice each and adds them up in the memories of the
// cluster.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/async_copies.cuh"
#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/gemm_codes.cuh"
#include "backends/cuda/kernels/packed_products.cuh"
#include "backends/cuda/kernels/start.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kRows = 128;
constexpr int kConsumerWarps = 8;
constexpr int kCopyWarps = 4;
constexpr int kThreads = (kConsumerWarps + kCopyWarps) * 32;
constexpr int kGroupValues = 64;            // of k, in one group of four instructions
constexpr int kResultStride = kRows + 4;    // floats between columns of results: no bank meets itself
constexpr int kMaxStages = 12;
constexpr int kBarrierBytes = 2 * kMaxStages * 8 + 64;  // a multiple of 128 with what follows

/// One stage of the ring: activations, codes, scales.
template <WeightKind kind, int kColumns>
struct Stage {
  static constexpr int kRowBytes = kind == WeightKind::bf16 ? 128 : 64;
  static constexpr int kValues = kind == WeightKind::fp4 ? 128 : 64;
  static constexpr int kGroups = kValues / kGroupValues;
  static constexpr int kXBytes = kColumns * kValues * 2;
  static constexpr int kCodeBytes = kRows * kRowBytes;
  static constexpr int kScaleBytes = kind == WeightKind::fp8 ? 128 : kind == WeightKind::fp4 ? 4 * kRows : 0;
  static constexpr int kBytes = kXBytes + kCodeBytes + kScaleBytes;
};

/// Blocks on a multiprocessor. What the copying warps give up lets a consumer have more than its share of registers.
template <WeightKind kind, int kColumns>
constexpr int kBlocksAtOnce = kind == WeightKind::bf16 ? (kColumns < 64 ? 2 : 1) : kColumns == 128 ? 1 : kColumns == 8 ? 3 : 2;
constexpr int kConsumerRegisters[] = {0, 232, 104, 64};
/// Sets of operands in registers: with two, codes are turned while the tensor cores work; with one, another block's are.
template <WeightKind kind, int kColumns>
constexpr int kOperandSets = kind != WeightKind::bf16 && (kColumns == 8 || kColumns == 64) ? 1 : 2;

struct HopperParams {
  GemmParams gemm;
  std::int32_t stages = 0;
  bool in_slices = false;  // the blocks of a cluster take a slice each
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Where a piece of 16 bytes of a row of codes lies. Rows of 128 bytes trade halves, so that 8 rows meet different banks.
template <WeightKind kind>
__device__ __forceinline__ int piece_place(int row, int piece) {
  return kind == WeightKind::bf16 ? row * 128 + (piece ^ (row & 1) << 2) * 16 : row * 64 + piece * 16;
}

/// The place in the ring of a step, and the parity of its barriers.
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Addresses of one block's ring.
struct Ring {
  std::uint32_t barriers, memory;
  const std::uint8_t* bytes;  // of memory
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + stage * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return barriers + stage * 16 + 8; }
};

// --- the copying warps --------------------------------------------------------------------------------------------

/// Each warp copies a quarter of the rows.
template <WeightKind kind, int kColumns>
__device__ __forceinline__ void copy_weights(const HopperParams& p, const GemmWork& work, int tile_row, int step, std::uint32_t stage,
                                             std::uint32_t barrier) {
  using S = Stage<kind, kColumns>;
  const GemmParams& gemm = p.gemm;
  constexpr int kPieces = S::kRowBytes / 16;
  constexpr int kThreadRows = kCopyWarps * 32 / kPieces;  // rows the warps copy at once
  const int thread = threadIdx.x - kConsumerWarps * 32;
  const int piece = thread % kPieces;
  const std::uint32_t codes = stage + S::kXBytes;
  const std::int64_t bytes = row_bytes<kind>(gemm.k);
  const std::uint8_t* source = work.codes + work.weight_row * bytes + static_cast<std::int64_t>(step) * S::kRowBytes + piece * 16;
#pragma unroll
  for (int i = 0; i < kRows / kThreadRows; ++i) {
    const int row = i * kThreadRows + thread / kPieces;
    copy_16(codes + piece_place<kind>(row, piece), source + min(tile_row + row, gemm.n - 1) * bytes);
  }
  const std::uint32_t scales = codes + S::kCodeBytes;
  const int per_row = gemm.k / kWeightBlock;
  if constexpr (kind == WeightKind::fp8) {  // the aligned word that holds the two scales of the step
    if (thread <= kRows / kWeightBlock) {   // one more where rows do not begin with a block
      const std::int64_t row = min((work.weight_row + tile_row) / kWeightBlock + thread, (work.weight_row + gemm.n - 1) / kWeightBlock);
      copy_4(scales + thread * 4, work.scales + row * per_row + step / 2 * 4);
    }
  } else if constexpr (kind == WeightKind::fp4) {
    copy_4(scales + thread * 4, work.scales + (work.weight_row + min(tile_row + thread, gemm.n - 1)) * per_row + step * 4);
  }
  arrive_after_copies(barrier);
}

template <WeightKind kind, int kColumns>
__device__ __forceinline__ void copy_activations(const bf16* x, int step, std::uint32_t stage, std::uint32_t barrier) {
  using S = Stage<kind, kColumns>;
  if (threadIdx.x == kConsumerWarps * 32) {
    expect_bytes(barrier, S::kXBytes);
    copy_bulk(stage, x + static_cast<std::int64_t>(step) * (S::kXBytes / 2), S::kXBytes, barrier);
  }
}

template <WeightKind kind, int kColumns>
__device__ void copy_all(const HopperParams& p, const GemmWork& work, const Ring& ring, int tile_row, int first, int end) {
  using S = Stage<kind, kColumns>;
  const GemmParams& gemm = p.gemm;
  const bf16* x = gemm.x + blockIdx.z * gemm.x_group + static_cast<std::int64_t>(blockIdx.y) * kColumns * gemm.k;
  // The first round: weights do not wait for the kernel before.
  const int ahead = min(end, first + p.stages);
  for (int step = first; step < ahead; ++step) {
    copy_weights<kind, kColumns>(p, work, tile_row, step, ring.memory + (step - first) * S::kBytes, ring.full(step - first));
  }
  wait_for_inputs();
  for (int step = first; step < ahead; ++step) {
    copy_activations<kind, kColumns>(x, step, ring.memory + (step - first) * S::kBytes, ring.full(step - first));
  }
  RingPlace place;
  for (int step = ahead; step < end; ++step) {
    wait_barrier(ring.empty(place.stage), place.parity);
    const std::uint32_t stage = ring.memory + place.stage * S::kBytes;
    copy_activations<kind, kColumns>(x, step, stage, ring.full(place.stage));
    copy_weights<kind, kColumns>(p, work, tile_row, step, stage, ring.full(place.stage));
    place.advance(p.stages);
  }
}

// --- the warpgroups -----------------------------------------------------------------------------------------------

/// A warp's codes and scales of a step.
struct WarpCodes {
  unsigned words[2][2][4];  // row g, row g + 8; bf16: of each half
  std::uint8_t scale[2];
};

/// `row` within the tile, `first_row` of the tile within its block of scales.
template <WeightKind kind, int kColumns>
__device__ __forceinline__ void load_codes(const std::uint8_t* stage, int row, int first_row, int step, WarpCodes& out) {
  using S = Stage<kind, kColumns>;
  const int t = threadIdx.x % 4;
  const std::uint8_t* codes = stage + S::kXBytes;
  const std::uint8_t* scales = codes + S::kCodeBytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = row + i * 8;
#pragma unroll
    for (int half = 0; half < (kind == WeightKind::bf16 ? 2 : 1); ++half) {
      const uint4 v = *reinterpret_cast<const uint4*>(codes + piece_place<kind>(r, half * 4 + t));
      out.words[half][i][0] = v.x, out.words[half][i][1] = v.y, out.words[half][i][2] = v.z, out.words[half][i][3] = v.w;
    }
    if constexpr (kind == WeightKind::fp8) {
      out.scale[i] = scales[(first_row + r) / kWeightBlock * 4 + step % 2 * 2 + t / 2];
    } else if constexpr (kind == WeightKind::fp4) {
      out.scale[i] = scales[r * 4 + t];
    }
  }
}

/// Operands of the four instructions of a group. `zero` is 0, which the compiler does not know: because of the branch it moves bf16 values
/// to the operands' registers before the instructions, not between them, where they would wait for each other.
template <WeightKind kind>
__device__ __forceinline__ void unpack_group(const WarpCodes& codes, int group, unsigned zero, unsigned (&a)[4][4]) {
  unsigned pairs[2][2][4];  // unit, row
  Scale scale[2] = {};
  if constexpr (kind != WeightKind::bf16) {
    scale[0] = make_scale<Codes<kind>::kBias>(codes.scale[0]);
    scale[1] = make_scale<Codes<kind>::kBias>(codes.scale[1]);
  }
#pragma unroll
  for (int unit = 0; unit < 2; ++unit) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned* words = kind == WeightKind::bf16 ? codes.words[unit][i] : codes.words[0][i] + (group * 2 + unit) * Codes<kind>::kWordsPerUnit;
      Codes<kind>::unpack(words, scale[i], pairs[unit][i]);
    }
  }
  if constexpr (kind != WeightKind::bf16) {
    if (max(codes.scale[0], codes.scale[1]) > 254 - Codes<kind>::kBias) {  // hardly ever
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        add_rest(pairs[unit][0], scale[0]);
        add_rest(pairs[unit][1], scale[1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i][0] = pairs[i / 2][0][i % 2 * 2];
    a[i][1] = pairs[i / 2][1][i % 2 * 2];
    a[i][2] = pairs[i / 2][0][i % 2 * 2 + 1];
    a[i][3] = pairs[i / 2][1][i % 2 * 2 + 1];
  }
  if (kind == WeightKind::bf16 && zero != 0) {
#pragma unroll
    for (auto& operand : a) {
      operand[0] ^= zero, operand[1] ^= zero, operand[2] ^= zero, operand[3] ^= zero;
    }
  }
#pragma unroll
  for (auto& operand : a) {  // here, not between the instructions
    asm volatile("" : "+r"(operand[0]), "+r"(operand[1]), "+r"(operand[2]), "+r"(operand[3]));
  }
}

template <int kColumns>
__device__ __forceinline__ void multiply_group(float (&acc)[kColumns / 2], const unsigned (&a)[4][4], std::uint32_t x) {
  const std::uint64_t first = matrix_of(x, kColumns * 16);
  begin_products();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    multiply<kColumns>(acc, a[i], first + i * 2 * kColumns);  // two pieces of 8 values on, in units of 16 bytes
  }
  end_products();
}

__device__ __forceinline__ void release(const Ring& ring, int stage) {
  if (threadIdx.x % 32 == 0) {
    arrive(ring.empty(stage));
  }
}

/// Sum of the slices [first_slice, last_slice) for the warp's 16 rows from `row` on.
template <WeightKind kind, int kColumns>
__device__ __forceinline__ void multiply_slices(const HopperParams& p, const Ring& ring, int row, int first_row, int steps, int first_slice,
                                                int last_slice, float (&total)[kColumns / 2]) {
  using S = Stage<kind, kColumns>;
  float acc[kColumns / 2];
  constexpr int kSets = kOperandSets<kind, kColumns>;
  unsigned a[kSets][4][4];
  RingPlace place;
  for (int slice = first_slice; slice < last_slice; ++slice) {
#pragma unroll
    for (float& sum : acc) {
      sum = 0;
    }
    const int first = slice_begin(slice, steps);
    const int end = slice_begin(slice + 1, steps);
    int previous = -1;  // stage that the group before the current one has not finished reading
    const auto one_step = [&](int step, auto buffer) {
      constexpr int kBuffer = decltype(buffer)::value;
      wait_barrier(ring.full(place.stage), place.parity);
      const std::uint32_t stage = ring.memory + place.stage * S::kBytes;
      WarpCodes codes;
      load_codes<kind, kColumns>(ring.bytes + place.stage * S::kBytes, row, first_row, step, codes);
#pragma unroll
      for (int group = 0; group < S::kGroups; ++group) {
        unsigned(&operand)[4][4] = a[kSets == 1 ? 0 : S::kGroups == 1 ? kBuffer : group];
        if constexpr (kSets == 1) {
          wait_products<0>();
        }
        unpack_group<kind>(codes, group, p.gemm.k & 1, operand);
        multiply_group<kColumns>(acc, operand, stage + group * (kColumns * kGroupValues * 2));
        if constexpr (kSets > 1) {
          wait_products<1>();
        }
        if (group == 0 && previous >= 0) {
          release(ring, previous);
        }
      }
      previous = place.stage;
      place.advance(p.stages);
    };
    for (int step = first; step < end; step += 2) {
      one_step(step, std::integral_constant<int, 0>{});
      if (step + 1 < end) {
        one_step(step + 1, std::integral_constant<int, 1>{});
      }
    }
    wait_products<0>();
    if (previous >= 0) {
      release(ring, previous);
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      total[i] = slice == first_slice ? acc[i] : total[i] + acc[i];
    }
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

/// Rounds and stores the results of the block, or of its part of the columns' quarters when slices lie in the blocks of the cluster.
template <int kColumns>
__device__ __forceinline__ void store_results(const HopperParams& p, const GemmWork& work, std::uint32_t results, int tile_row, unsigned rank,
                                              int thread, int threads) {
  const int count = min(kColumns, work.num_columns) * (kRows / 4);
  const int first = p.in_slices ? static_cast<int>(rank) * threads + thread : thread;
  const int stride = p.in_slices ? threads * kSlices : threads;
  for (int i = first; i < count; i += stride) {
    const int column = i / (kRows / 4);
    const int row = i % (kRows / 4) * 4;
    const std::uint32_t address = results + (column * kResultStride + row) * 4;
    float4 sum = load_remote(address, 0);
    if (p.in_slices) {
#pragma unroll
      for (unsigned slice = 1; slice < kSlices; ++slice) {
        const float4 part = load_remote(address, slice);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
    }
    store_four(p.gemm, work, column, tile_row + row, {sum.x, sum.y, sum.z, sum.w});
  }
}

#endif  // SM90

template <WeightKind kind, int kColumns>
__global__ __launch_bounds__(kThreads, kBlocksAtOnce<kind, kColumns>) void warpgroup_gemm_kernel(const __grid_constant__ HopperParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Stage<kind, kColumns>;
  extern __shared__ __align__(128) std::uint8_t memory[];
  const GemmParams& gemm = p.gemm;
  const int warp = threadIdx.x / 32;
  const unsigned rank = p.in_slices ? cluster_rank() : 0;
  const int tile_row = (p.in_slices ? blockIdx.x / kSlices : blockIdx.x) * kRows;
  if (gemm.experts != nullptr) {
    wait_for_inputs();  // the tiles
  }
  GemmWork work;
  if (!find_work(gemm, blockIdx.y, blockIdx.z, kColumns, work)) {  // nor for the others of the cluster
    wait_for_inputs();
    return;
  }
  const Ring ring{shared_address(memory), shared_address(memory) + kBarrierBytes, memory + kBarrierBytes};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < p.stages; ++stage) {
      init_barrier(ring.full(stage), kCopyWarps * 32 + 1);
      init_barrier(ring.empty(stage), kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const int steps = gemm.k / S::kValues;
  const int first_slice = p.in_slices ? static_cast<int>(rank) : 0;
  const int last_slice = p.in_slices ? first_slice + 1 : kSlices;
  const std::uint32_t results = ring.memory;  // over the ring, once nothing reads it
  if (warp >= kConsumerWarps) {
    give_registers<32>();
    copy_all<kind, kColumns>(p, work, ring, tile_row, slice_begin(first_slice, steps), slice_begin(last_slice, steps));
  } else {
    take_registers<kConsumerRegisters[kBlocksAtOnce<kind, kColumns>]>();
    wait_for_inputs();
    const int row = warp * 16 + threadIdx.x % 32 / 4;
    float total[kColumns / 2];
    multiply_slices<kind, kColumns>(p, ring, row, static_cast<int>(work.weight_row % kWeightBlock), steps, first_slice, last_slice, total);
    asm volatile("bar.sync 1, 256;" ::: "memory");
    leave_results<kColumns>(results, row, total);
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (!p.in_slices) {
      store_results<kColumns>(p, work, results, tile_row, rank, threadIdx.x, kConsumerWarps * 32);
    }
  }
  if (p.in_slices) {
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

template <WeightKind kind, int kColumns>
void launch_columns(const GemmParams& gemm, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  using S = Stage<kind, kColumns>;
  const int row_tiles = (gemm.n + kRows - 1) / kRows;
  HopperParams p{.gemm = gemm};
  const int blocks = row_tiles * tiles.count * groups;
  p.in_slices = blocks < kFewBlocks && gemm.k / S::kValues >= kSlices;
  constexpr int kBlocks = kBlocksAtOnce<kind, kColumns>;
  const int limit = (kMaxSharedBytes + 1024) / kBlocks - 1024 - kBarrierBytes;  // each block takes 1 KB more than it asks for
  p.stages = std::min(kMaxStages, limit / S::kBytes);
  const int ring_bytes = std::max(p.stages * S::kBytes, kColumns * kResultStride * 4);
  auto* kernel = warpgroup_gemm_kernel<kind, kColumns>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBarrierBytes + ring_bytes);
  start(kernel,
        {.grid = dim3(row_tiles * (p.in_slices ? kSlices : 1), tiles.count, groups),
         .block = kThreads,
         .shared_bytes = static_cast<std::size_t>(kBarrierBytes + ring_bytes),
         .cluster = p.in_slices ? kSlices : 1},
        stream, p);
}

template <WeightKind kind>
void launch_kind(const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  const auto launch = tiles.columns == 8    ? launch_columns<kind, 8>
                      : tiles.columns == 16 ? launch_columns<kind, 16>
                      : tiles.columns == 32 ? launch_columns<kind, 32>
                      : tiles.columns == 64 ? launch_columns<kind, 64>
                                            : launch_columns<kind, 128>;
  launch(p, tiles, groups, stream);
}

bool is_hopper() {
  int device = 0;
  int major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major == 9;
}

}  // namespace

bool takes_warpgroups(WeightKind kind, int k) {
  static const bool is_there = is_hopper();
  // Codes and scales in whole words; slices of bf16 in whole stages.
  return is_there && k % (kind == WeightKind::bf16 ? 512 : 128) == 0;
}

void launch_warpgroup_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  const auto launch = kind == WeightKind::fp8   ? launch_kind<WeightKind::fp8>
                      : kind == WeightKind::fp4 ? launch_kind<WeightKind::fp4>
                                                : launch_kind<WeightKind::bf16>;
  launch(p, tiles, groups, stream);
}

}  // namespace deepinfer::cuda
