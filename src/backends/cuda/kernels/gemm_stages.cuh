// Stages of products with warpgroup instructions (gemm_hopper.cu): what a stage of the ring in shared memory holds, and the warps that copy.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/async_copies.cuh"
#include "backends/cuda/kernels/gemm_codes.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda::hopper {

inline constexpr int kRows = 128;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kCopyWarps = 4;
inline constexpr int kThreads = (kConsumerWarps + kCopyWarps) * 32;
inline constexpr int kGroupValues = 64;            // of k, in one group of four instructions
inline constexpr int kResultStride = kRows + 4;    // floats between columns of results: no bank meets itself
inline constexpr int kMaxStages = 12;
inline constexpr int kMostBytesAhead = 128 * 1024;  // of a block: all that run at once ask for at most about half the cache
inline constexpr int kBarrierBytes = 2 * kMaxStages * 8 + 64;  // a multiple of 128 with what follows

// What is copied of the weights in one step, scales behind codes.
template <WeightKind kind>
constexpr int kRowBytes = kind == WeightKind::bf16 ? 128 : 64;
template <WeightKind kind>
constexpr int kStepValues = kind == WeightKind::fp4 ? 128 : 64;  ///< of k
template <WeightKind kind>
constexpr int kStepGroups = kStepValues<kind> / kGroupValues;
template <WeightKind kind>
constexpr int kCodeBytes = kRows * kRowBytes<kind>;
template <WeightKind kind>
constexpr int kWeightBytes = kCodeBytes<kind> + (kind == WeightKind::fp8 ? 128 : kind == WeightKind::fp4 ? 4 * kRows : 0);

/// One stage of the ring: activations, codes, scales.
template <WeightKind kind, int kColumns>
struct Stage {
  static constexpr int kValues = kStepValues<kind>;
  static constexpr int kGroups = kStepGroups<kind>;
  static constexpr int kXBytes = kColumns * kValues * 2;
  static constexpr int kBytes = kXBytes + kWeightBytes<kind>;
};

struct HopperParams {
  GemmParams gemm;
  std::int32_t stages = 0;
  std::int32_t cluster = 1;  // blocks that share the slices; 1: a block has all of them, and they are no cluster
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
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers + stage * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return barriers + stage * 16 + 8; }
};

// --- the copying warps --------------------------------------------------------------------------------------------

static_assert(kRows == kUnitRows);

/// Bulk copies of a stage besides the activations.
template <WeightKind kind>
constexpr unsigned kUnitsBytes = kind == WeightKind::bf16 ? 0 : kind == WeightKind::fp8 ? kUnitBytes : kUnitBytes + kUnitScaleBytes;
/// Threads that copy pieces of the weights and tell when those are there.
template <WeightKind kind>
constexpr unsigned kPieceThreads = kind == WeightKind::bf16 ? kCopyWarps * 32 : kind == WeightKind::fp8 ? 32 : 0;
/// Who tells that a stage is full, besides bulk copies: those, and the one that starts the activations.
template <WeightKind kind>
constexpr unsigned kArrivals = kPieceThreads<kind> + 1;

/// bf16: each warp copies a quarter of the rows, in pieces of 16 bytes.
__device__ __forceinline__ void copy_weights_bf16(const GemmParams& gemm, const GemmWork& work, int tile_row, int step, std::uint32_t to,
                                                  std::uint32_t barrier) {
  constexpr int kPieces = kRowBytes<WeightKind::bf16> / 16;
  constexpr int kThreadRows = kCopyWarps * 32 / kPieces;  // rows the warps copy at once
  const int thread = threadIdx.x - kConsumerWarps * 32;
  const int piece = thread % kPieces;
  const std::int64_t bytes = row_bytes<WeightKind::bf16>(gemm.k);
  const std::uint8_t* source = work.codes + work.weight_row * bytes + static_cast<std::int64_t>(step) * kRowBytes<WeightKind::bf16> + piece * 16;
#pragma unroll
  for (int i = 0; i < kRows / kThreadRows; ++i) {
    const int row = i * kThreadRows + thread / kPieces;
    copy_16(to + piece_place<WeightKind::bf16>(row, piece), source + min(tile_row + row, gemm.n - 1) * bytes);
  }
  arrive_after_copies(barrier);
}

/// The weights of a step. Codes: one thread copies a unit, with its scales; FP8: a few threads of its warp the words that hold the scales.
template <WeightKind kind>
__device__ __forceinline__ void copy_weights(const GemmParams& gemm, const GemmWork& work, int tile_row, int step, std::uint32_t to,
                                             std::uint32_t barrier) {
  if constexpr (kind == WeightKind::bf16) {
    copy_weights_bf16(gemm, work, tile_row, step, to, barrier);
  } else {
    static_assert(kCodeBytes<kind> == kUnitBytes);
    const int thread = threadIdx.x - kConsumerWarps * 32;
    const std::uint32_t scales = to + kCodeBytes<kind>;
    const int per_row = gemm.k / kWeightBlock;
    if (thread == 0) {
      const std::int64_t row = work.weight_row + tile_row;
      copy_bulk(to, work.codes + row * row_bytes<kind>(gemm.k) + static_cast<std::int64_t>(step) * kUnitBytes, kUnitBytes, barrier);
      if constexpr (kind == WeightKind::fp4) {
        copy_bulk(scales, work.scales + row * per_row + step * kUnitScaleBytes, kUnitScaleBytes, barrier);
      }
    }
    if constexpr (kind == WeightKind::fp8) {
      if (thread < kRows / kWeightBlock) {
        const std::int64_t row = (work.weight_row + tile_row) / kWeightBlock + thread;
        copy_4(scales + thread * 4, work.scales + row * per_row + step / 2 * 4);
      }
      if (thread < 32) {
        arrive_after_copies(barrier);
      }
    }
  }
}

template <WeightKind kind, int kColumns>
__device__ __forceinline__ void copy_activations(const bf16* x, int step, std::uint32_t stage, std::uint32_t barrier) {
  using S = Stage<kind, kColumns>;
  if (threadIdx.x == kConsumerWarps * 32) {
    expect_bytes(barrier, S::kXBytes + kUnitsBytes<kind>);
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
    copy_weights<kind>(gemm, work, tile_row, step, ring.memory + (step - first) * S::kBytes + S::kXBytes, ring.full(step - first));
  }
  if constexpr (kColumns < 128 && kind != WeightKind::bf16) {
    if (threadIdx.x == kConsumerWarps * 32) {
      const std::uint8_t* source = work.codes + (work.weight_row + tile_row) * row_bytes<kind>(gemm.k);
      fetch_ahead(source + static_cast<std::int64_t>(ahead) * kUnitBytes, min((end - ahead) * kUnitBytes, kMostBytesAhead));
    }
  }
  wait_for_inputs();
  for (int step = first; step < ahead; ++step) {
    copy_activations<kind, kColumns>(x, step, ring.memory + (step - first) * S::kBytes, ring.full(step - first));
  }
  if (kind != WeightKind::bf16 && threadIdx.x >= (kConsumerWarps + 1) * 32) {
    return;  // one warp suffices
  }
  RingPlace place;
  for (int step = ahead; step < end; ++step) {
    wait_barrier(ring.empty(place.stage), place.parity);
    const std::uint32_t stage = ring.memory + place.stage * S::kBytes;
    copy_activations<kind, kColumns>(x, step, stage, ring.full(place.stage));
    copy_weights<kind>(gemm, work, tile_row, step, stage + S::kXBytes, ring.full(place.stage));
    place.advance(p.stages);
  }
}

#endif  // SM90

}  // namespace deepinfer::cuda::hopper
