// Pairs (row, choice) sorted by expert, and the tiles of columns that the experts' products take. The order of columns within an expert is
// free, since no column sees another.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/moe_scratch.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {

inline constexpr int kSortThreads = 1024;
inline constexpr int kMaxExperts = kSortThreads;

/// Exclusive sum over the threads of a block of kSortThreads.
__device__ inline std::int32_t scan(std::int32_t value, std::int32_t* shared) {
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

/// How the columns of one expert are cut into tiles.
struct ExpertTiles {
  std::int32_t part, room;     // columns of a tile, and their places; less in the last one
  std::int32_t tiles, places;  // of all

  __device__ ExpertTiles(const ColumnTiles& routed, std::int32_t columns)
      : part(routed.is_wide ? wide_part(columns) : routed.columns),
        room(routed.is_wide ? wide_columns(part) : part),
        tiles((columns + part - 1) / part),
        places(tiles == 0 ? 0 : (tiles - 1) * room + (routed.is_wide ? wide_columns(columns - (tiles - 1) * part) : room)) {}

  __device__ void write(const MoeScratch& s, std::int32_t expert, std::int32_t columns, std::int32_t first, std::int32_t first_tile,
                        std::int32_t first_place) const {
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      const std::int32_t done = tile * part;
      s.tiles[first_tile + tile] = make_int4(expert, first + done, min(part, columns - done), first_place + tile * room);
    }
  }
  __device__ void write_steps(const MoeScratch& s, std::int32_t first_tile, std::int32_t first_place) const {
    for (std::int32_t step = 0; step < places / kWideStep; ++step) {
      s.tile_of[first_place / kWideStep + step] = first_tile + step * kWideStep / room;
    }
  }
};

inline constexpr int kFewPairs = 128;

/// One block, a thread a pair, which compares it with all others: shorter than counting and adding up where there are few.
static __global__ void sort_few_pairs_kernel(MoeParams p, MoeScratch s, ColumnTiles routed) {
  __shared__ std::int32_t experts[kFewPairs];
  __shared__ std::int32_t counts[kFewPairs];  // columns of the expert, at its first pair; else 0
  const std::int32_t pairs = p.num_rows * p.top_k;
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  begin_in_turn();
  const std::int32_t expert = i < pairs ? p.expert[i] : INT32_MAX;
  experts[i] = expert;
  __syncthreads();
  std::int32_t less = 0;
  std::int32_t before = 0;
  std::int32_t columns = 0;
#pragma unroll 4
  for (std::int32_t j = 0; j < pairs; ++j) {
    less += experts[j] < expert ? 1 : 0;
    before += experts[j] == expert && j < i ? 1 : 0;
    columns += experts[j] == expert ? 1 : 0;
  }
  const bool is_first = i < pairs && before == 0;
  counts[i] = is_first ? columns : 0;
  __syncthreads();
  if (i >= pairs) {
    return;
  }
  s.row_of[less + before] = i / p.top_k;
  s.place_of[i] = less + before;
  s.pair_of[less + before] = i;
  std::int32_t tiles = 0;
  std::int32_t places = 0;
  std::int32_t tiles_before = 0;
  std::int32_t places_before = 0;
  for (std::int32_t j = 0; j < pairs; ++j) {
    if (counts[j] > 0) {
      const ExpertTiles theirs(routed, counts[j]);
      const bool is_before = experts[j] < expert;
      tiles += theirs.tiles;
      places += theirs.places;
      tiles_before += is_before ? theirs.tiles : 0;
      places_before += is_before ? theirs.places : 0;
    }
  }
  if (is_first) {
    const ExpertTiles own(routed, columns);
    own.write(s, expert, columns, less, tiles_before, places_before);
    if (routed.is_wide) {
      own.write_steps(s, tiles_before, places_before);
    }
  }
  if (i == 0) {
    s.num_tiles[0] = tiles;
    s.num_tiles[1] = places / kWideStep;
  }
}

/// A cluster, a thread an expert: counts, offsets, tiles and places of all pairs. Blocks share the pairs; each finds the offsets of all experts.
static __global__ void sort_pairs_kernel(MoeParams p, MoeScratch s, ColumnTiles routed) {
  __shared__ std::int32_t cursor[kMaxExperts];
  __shared__ std::int32_t count[kMaxExperts];
  __shared__ std::int32_t warps[kSortThreads / 32];
  const std::int32_t pairs = p.num_rows * p.top_k;
  const std::int32_t e = threadIdx.x;
  const auto rank = static_cast<std::int32_t>(cluster_rank());
  const auto blocks = static_cast<std::int32_t>(gridDim.x);
  begin_in_turn();
  count[e] = 0;
  __syncthreads();
  for (std::int32_t i = rank * kSortThreads + e; i < pairs; i += blocks * kSortThreads) {
    atomicAdd(&count[p.expert[i]], 1);
  }
  cluster_barrier();
  std::int32_t columns = 0;
  std::int32_t before = 0;  // those of the blocks before
  for (std::int32_t block = 0; block < blocks; ++block) {
    const std::int32_t theirs = *in_block(&count[e], block);
    columns += theirs;
    before += block < rank ? theirs : 0;
  }
  cluster_arrive();
  const ExpertTiles own(routed, columns);
  const std::int32_t first = scan(columns, warps);
  const std::int32_t first_tile = scan(own.tiles, warps);
  const std::int32_t first_place = scan(own.places, warps);
  cursor[e] = first + before;
  if (e % blocks == rank) {
    own.write(s, e, columns, first, first_tile, first_place);
    if (routed.is_wide) {
      own.write_steps(s, first_tile, first_place);
    }
  }
  if (rank == 0 && e + 1 == kSortThreads) {
    s.num_tiles[0] = first_tile + own.tiles;
    s.num_tiles[1] = (first_place + own.places) / kWideStep;
  }
  __syncthreads();
  for (std::int32_t i = rank * kSortThreads + e; i < pairs; i += blocks * kSortThreads) {
    const std::int32_t place = atomicAdd(&cursor[p.expert[i]], 1);
    s.row_of[place] = i / p.top_k;
    s.place_of[i] = place;
    s.pair_of[place] = i;
  }
  cluster_wait();  // a block's counts stay until all blocks have read them
}

}  // namespace deepinfer::cuda
