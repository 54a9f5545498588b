// Attention core for 64 heads of 512 values (docs/spec/model.md 5.4 "Core"), one kernel from queries to Q8 outputs. A cluster of blocks
// takes a row: every warpgroup scores tiles of 64 keys for all heads, the peaks of all keys meet, probabilities go to all blocks, and every
// block sums some columns of the output over all keys. No sum is cut, so the size of the cluster changes no bit: scores add the columns in
// order, outputs add the keys in order, denominators add parts of 16 keys in order (wide_softmax.cuh).
#include "backends/cuda/kernels/attention_wide.h"
#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/start.cuh"
#include "backends/cuda/kernels/wide_outputs.cuh"
#include "backends/cuda/kernels/wide_scores.cuh"
#include "backends/cuda/kernels/wide_softmax.cuh"

namespace deepinfer::cuda {
namespace wide {
namespace {

// --- probabilities ------------------------------------------------------------------------------------------------

/// Stores four 8 x 8 matrices transposed: lanes 0-7, 8-15, 16-23, 24-31 give where the columns go.
__device__ __forceinline__ void store_transposed(unsigned column, const unsigned (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(column), "r"(matrices[0]), "r"(matrices[1]),
               "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

/// Scores of tile `tile` to probabilities in bf16, and the sums of the unrounded ones over the 16 keys of the warp.
__device__ __forceinline__ void store_probabilities(Shared& shared, std::int32_t tile, float (&scores)[32]) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t part = threadIdx.x / 32 % kTileParts;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 base = *reinterpret_cast<const float2*>(shared.denominators + 8 * j + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[4 * j + i] = probability_of(scores[4 * j + i], i % 2 == 0 ? base.x : base.y);
    }
  }
  float sums[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    sums[i] = scores[i / 2 * 4 + i % 2] + scores[i / 2 * 4 + i % 2 + 2];
  }
  join_lanes(sums, [](float x, float y) { return x + y; });
  *reinterpret_cast<float2*>(shared.sums() + (tile * kTileParts + part) * kHeads + lane * 2) = {sums[0], sums[1]};
  const unsigned out = shared_address(shared.tiles + tile * kTileBytes);
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const unsigned matrices[4] = {bf16_pair(scores[4 * j], scores[4 * j + 1]), bf16_pair(scores[4 * j + 2], scores[4 * j + 3]),
                                  bf16_pair(scores[4 * j + 4], scores[4 * j + 5]), bf16_pair(scores[4 * j + 6], scores[4 * j + 7])};
    store_transposed(out + tile_offset(8 * j + lane / 16 * 8 + lane % 8, part * 2 + lane / 8 % 2), matrices);
  }
}

/// Probabilities and sums of the tiles that other blocks of the cluster scored.
template <int kBlocks>
__device__ void fetch_probabilities(Shared& shared, unsigned rank) {
  constexpr int kAhead = 4;
  static_assert(kTileBytes == 2 * kThreads * 16 && kTileParts * kHeads == kThreads);
  const std::int32_t num_tiles = shared.num_tiles;
  uint4* own = reinterpret_cast<uint4*>(shared.tiles) + threadIdx.x;
  float* own_sums = shared.sums() + threadIdx.x;
#pragma unroll 1
  for (std::int32_t first = 0; first < num_tiles; first += kAhead) {
    uint4 pieces[kAhead][2];
    float sums[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int32_t tile = first + i;
      const unsigned owner = static_cast<unsigned>(tile % Share<kBlocks>::kGroups) / 2;
      if (tile < num_tiles && owner != rank) {
        const uint4* other = in_block(own, owner) + tile * 2 * kThreads;
        pieces[i][0] = other[0];
        pieces[i][1] = other[kThreads];
        sums[i] = in_block(own_sums, owner)[tile * kThreads];
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int32_t tile = first + i;
      const unsigned owner = static_cast<unsigned>(tile % Share<kBlocks>::kGroups) / 2;
      if (tile < num_tiles && owner != rank) {
        own[tile * 2 * kThreads] = pieces[i][0];
        own[tile * 2 * kThreads + kThreads] = pieces[i][1];
        own_sums[tile * kThreads] = sums[i];
      }
    }
  }
}

/// The denominator of a head, by the sums of all tiles.
__device__ __forceinline__ float join_sums(const AttendParams& p, Shared& shared, std::int32_t head) {
  float sums[2] = {};
#pragma unroll 1
  for (std::int32_t tile = 0; tile < shared.num_tiles; tile += 2) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      if (tile + odd < shared.num_tiles) {
#pragma unroll
        for (int part = 0; part < kTileParts; ++part) {
          sums[odd] += shared.sums()[((tile + odd) * kTileParts + part) * kHeads + head];
        }
      }
    }
  }
  return denominator_of(sums[0], sums[1], p.sink[head], shared.denominators[head]);
}

// --- the kernel ---------------------------------------------------------------------------------------------------

template <int kBlocks>
__global__ __launch_bounds__(kThreads, 2) void attend_kernel(AttendParams p) {
  begin_in_turn();
  using S = Share<kBlocks>;
  extern __shared__ __align__(1024) std::uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const std::int64_t r = blockIdx.x / kBlocks;
  const unsigned rank = cluster_rank();
  const std::int32_t group = threadIdx.x / kGroupThreads;
  const std::int32_t group_thread = threadIdx.x % kGroupThreads;
  for (std::int32_t i = threadIdx.x; i < kWarps * kHeads; i += kThreads) {
    shared.warp_peaks[0][i] = -INFINITY;
  }
  if (group == 0) {
    find_keys(p, r, shared);
  } else {
    load_queries(row_at(p.q, r, kHeads * kDim), shared.tiles);
    publish_tiles();
  }
  __syncthreads();

  const std::int32_t num_tiles = shared.num_tiles;
  const std::int32_t first_tile = static_cast<std::int32_t>(rank) * 2 + group;
  float scores[S::kTiles][32];
  constexpr bool kStashes = S::kTiles > 2;  // three tiles of scores and the work on one more are too many registers
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
    const std::int32_t tile = first_tile + i * S::kGroups;
    if (tile < num_tiles) {
      score_tile<S::kAhead>(p, shared, shared.first_place[tile], scores[i]);
      if (kStashes && i == 0) {
#pragma unroll
        for (int j = 0; j < 32; ++j) {
          shared.stash(group)[j * kGroupThreads + group_thread] = scores[i][j];
        }
      }
    }
  }
  if (kStashes) {
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      scores[0][j] = shared.stash(group)[j * kGroupThreads + group_thread];
    }
  }
  __syncthreads();
  if (threadIdx.x < kHeads) {
    float peak = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      peak = fmaxf(peak, shared.warp_peaks[warp][threadIdx.x]);
    }
    shared.block_peaks[threadIdx.x] = peak;
  }
  cluster_barrier();
  if (threadIdx.x < kHeads) {
    float peak = -INFINITY;
#pragma unroll
    for (unsigned block = 0; block < kBlocks; ++block) {
      peak = fmaxf(peak, *in_block(shared.block_peaks + threadIdx.x, block));
    }
    shared.denominators[threadIdx.x] = base_of(peak);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
    const std::int32_t tile = first_tile + i * S::kGroups;
    if (tile < num_tiles) {
      store_probabilities(shared, tile, scores[i]);
    }
  }
  cluster_barrier();
  fetch_probabilities<kBlocks>(shared, rank);
  cluster_arrive();
  publish_tiles();
  __syncthreads();
  float denominator = 1;
  if (threadIdx.x < kHeads) {
    denominator = join_sums(p, shared, static_cast<std::int32_t>(threadIdx.x));
  }
  __syncthreads();  // sums and peaks are read: their places become stages and denominators
  if (threadIdx.x < kHeads) {
    shared.denominators[threadIdx.x] = denominator;
  }
  cluster_wait();  // all blocks have fetched what they need of this one

  float sums[S::kGroupColumns / 2] = {};
  sum_values<kBlocks>(p, shared, rank, sums);
  __syncthreads();  // products have read the tiles, which become outputs; denominators are there where no key was summed
  constexpr std::int32_t kStride = S::kColumns + 8;
  static_assert(kHeads * kStride * sizeof(bf16) <= sizeof(Shared::tiles));
  bf16* outputs = reinterpret_cast<bf16*>(shared.tiles);
  if (group < S::kSummingGroups) {
    round_outputs<S::kGroupColumns, kStride>(shared, group * S::kGroupColumns, sums, outputs);
  }
  __syncthreads();
  finish_outputs<S::kColumns, kStride>(p, r, static_cast<std::int32_t>(rank) * S::kColumns, outputs);
}

template <int kBlocks>
void launch(const AttendParams& p, cudaStream_t stream) {
  start(attend_kernel<kBlocks>,
        {.grid = dim3(static_cast<unsigned>(p.rows.num_rows) * kBlocks), .block = kThreads, .shared_bytes = sizeof(Shared), .cluster = kBlocks},
        stream, p);
}

}  // namespace
}  // namespace wide

bool is_wide(const AttendParams& p) { return p.heads == wide::kHeads && p.head_dim == wide::kDim && places_of(p).all <= wide::kMaxPlaces; }

void attend_wide(const AttendParams& p, cudaStream_t stream) {
  // As many blocks as run at once on the 132 multiprocessors of a Hopper GPU, two on each.
  constexpr std::int32_t kSlots = 264;
  if (p.rows.num_rows <= kSlots / 8) {
    wide::launch<8>(p, stream);
  } else if (attend_many(p, stream)) {
    // A block a row is faster from here on.
  } else if (p.rows.num_rows <= kSlots / 4) {
    wide::launch<4>(p, stream);
  } else {
    wide::launch<2>(p, stream);
  }
}

}  // namespace deepinfer::cuda
