// Attention core for 64 heads of 512 values (docs/spec/model.md 5.4 "Core") where rows are many (SM90): the bits of attention_wide.cu.
// Blocks stay and take one row after the other. Two warpgroups decode keys to shared memory, half of the columns of every tile of 64 keys
// each; two others multiply, first all scores, tiles in turn, which stay in registers, then the outputs, half of the columns each. Between,
// probabilities take the place of the queries. Keys are decoded twice, since a row's do not fit.
//
// What bounds it: with 640 keys a row takes 20,500 cycles of the tensor cores, 28,000 of shared memory, 16,000 of the issue slots for
// decoding, which two warps a scheduler fill to less than half, and 2,600 of the exponential units, in which the tensor cores wait.
#include <algorithm>

#include "backends/cuda/kernels/attention_wide.h"
#include "backends/cuda/kernels/gemm.h"
#include "backends/cuda/kernels/hopper.h"
#include "backends/cuda/kernels/many_keys.cuh"
#include "backends/cuda/kernels/many_outputs.cuh"
#include "backends/cuda/kernels/many_rows.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace wide {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kMultiplyRegisters = 184;
constexpr int kDecodeRegisters = 72;

/// Four 8 x 8 matrices as they lie: lanes 0-7, 8-15, 16-23, 24-31 give where the rows go.
__device__ __forceinline__ void store_matrices(unsigned row, const unsigned (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(matrices[0]), "r"(matrices[1]),
               "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

/// In a register of its own, so that those of a product become free.
__device__ __forceinline__ float moved(float x) {
  float out = 0;
  asm volatile("mov.b32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

/// A thread of a warpgroup that multiplies. Scores and sums lie as products leave them: rows are heads.
struct Multiplier {
  ManyShared& shared;
  std::int32_t group = threadIdx.x / kGroupThreads;
  std::int32_t lane = threadIdx.x % 32;
  std::int32_t t = threadIdx.x % 4;
  std::int32_t warp = threadIdx.x % kGroupThreads / 32;
  std::int32_t head = warp * 16 + lane / 4;  ///< and 8 more

  __device__ __forceinline__ void tell(std::uint32_t barrier) const {
    __syncwarp();
    if (lane == 0) {
      arrive(barrier);
    }
  }

  /// Score j of a thread's first tile: as many as fit into registers stay there.
  [[nodiscard]] __device__ __forceinline__ float& stash(int j) const {
    auto* behind_queries = reinterpret_cast<float*>(shared.tiles + (kManyTiles - 2 + group) * kTileBytes);
    return behind_queries[j * kGroupThreads + static_cast<std::int32_t>(threadIdx.x % kGroupThreads)];
  }

  /// Products of the block's n-th tile with the queries; the other warpgroup does not read it.
  __device__ __forceinline__ void score(unsigned n, float (&scores)[32]) const {
    constexpr int kProducts = kDim / 16;
#pragma unroll
    for (float& score : scores) {
      score = 0;
    }
    const std::uint64_t queries = tile_descriptor(shared_address(shared.tiles), kPieceBytes);
    const std::uint64_t keys = tile_descriptor(shared_address(shared.keys[place_of(n)]), kPieceBytes);
#pragma unroll
    for (unsigned product = 0; product < kProducts; ++product) {
      if (product % (kProducts / 2) == 0) {
        wait_barrier(shared.full(product / (kProducts / 2), place_of(n)), parity_of(n));
        begin_products();
      }
      const unsigned at = (product / 4 * kTileBytes + product % 4 * 2 * kPieceBytes) / 16;
      issue_product_by_rows(scores, queries + at, keys + at);
      if (product == kProducts / 2 - 1) {
        end_products();
      }
    }
    end_products();
    wait_products<1>();
    tell(shared.empty(0, place_of(n)));
    wait_products<0>();
    take_sums(scores);
    tell(shared.empty(1, place_of(n)));
  }

  /// -infinity for empty places.
  __device__ __forceinline__ void mask(const RowKeys& row, std::int32_t tile, float (&scores)[32]) const {
    const std::int32_t word = row.first_place[tile] / 32;
    const unsigned taken[2] = {row.taken[word], row.taken[word + 1]};
    if ((taken[0] & taken[1]) != ~0U) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int key = i / 4 * 8 + i % 2;
        scores[i] = (taken[key / 32] >> (key % 32 + 2 * t) & 1U) != 0 ? scores[i] : -INFINITY;
      }
    }
  }

  /// Scores of the row's tile `tile`, whose first is the block's n-th, and the highest of each of the lane's heads.
  __device__ __forceinline__ void score_tile(const RowKeys& row, std::int32_t tile, unsigned n, float (&scores)[32],
                                             float (&highest)[2]) const {
    score(n + static_cast<unsigned>(tile), scores);
    mask(row, tile, scores);
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      highest[j / 2 % 2] = fmaxf(highest[j / 2 % 2], scores[j]);  // skips NaN, which comes through its probability
    }
  }

  /// Scores to probabilities, in shared memory; adds them to the denominator of head + t / 2 * 8, sums over parts of 16 keys that come by
  /// the tree of attention_wide.cu: keys 8 apart, then those 4, 2 and 1 places apart.
  __device__ __forceinline__ void make_probabilities(std::int32_t tile, const float (&base)[2], const float (&scores)[32],
                                                     float& denominator) const {
    const unsigned out = shared_address(shared.tiles + tile * kTileBytes);
    float halves[4][2];  // of the head that stays here
#pragma unroll
    for (int part = 0; part < kTileParts; ++part) {  // of 16 keys
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = probability_of(scores[part * 8 + i], base[i / 2 % 2]);
      }
      const unsigned matrices[4] = {bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7])};
      store_matrices(out + tile_offset(warp * 16 + lane / 8 % 2 * 8 + lane % 8, part * 2 + lane / 16), matrices);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float first = x[i] + x[4 + i];
        const float second = x[2 + i] + x[6 + i];
        const float other = __shfl_xor_sync(kWholeWarp, t / 2 == 0 ? second : first, 2);
        halves[part][i] = (t / 2 == 0 ? first : second) + other;
      }
    }
    float sums[2];  // of parts t % 2 * 2 and the next
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float other = __shfl_xor_sync(kWholeWarp, t % 2 == 0 ? halves[part + 2][i] : halves[part][i], 1);
        pair[i] = (t % 2 == 0 ? halves[part][i] : halves[part + 2][i]) + other;
      }
      sums[part] = pair[0] + pair[1];
    }
    const float others[2] = {__shfl_xor_sync(kWholeWarp, sums[0], 1), __shfl_xor_sync(kWholeWarp, sums[1], 1)};
    denominator += t % 2 == 0 ? sums[0] : others[0];
    denominator += t % 2 == 0 ? sums[1] : others[1];
    denominator += t % 2 == 0 ? others[0] : sums[0];
    denominator += t % 2 == 0 ? others[1] : sums[1];
  }

  /// Scores of a row to probabilities; ends with a barrier. factors: what the sums of the lane's heads are multiplied with.
  __device__ __forceinline__ void make_row(const AttendParams& p, const RowKeys& row, unsigned n, float (&factors)[2]) const {
    const std::int32_t num_tiles = row.num_tiles;
    float highest[2] = {-INFINITY, -INFINITY};
    float kept[32 - kStashed] = {};  // of the first tile
    if (group < num_tiles) {
      float scores[32];
      score_tile(row, group, n, scores, highest);
#pragma unroll
      for (int j = 0; j < kStashed; ++j) {
        stash(j) = scores[j];
      }
#pragma unroll
      for (int j = kStashed; j < 32; ++j) {
        kept[j - kStashed] = moved(scores[j]);
      }
    }
    float scores[kOwnTiles - 1][32];
#pragma unroll
    for (int i = 0; i < kOwnTiles - 1; ++i) {
      const std::int32_t tile = 2 * (i + 1) + group;
      if (tile < num_tiles) {
        score_tile(row, tile, n, scores[i], highest);
      } else {  // so that the compiler does not keep registers for them from row to row
#pragma unroll
        for (float& score : scores[i]) {
          score = 0;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = fmaxf(highest[half], __shfl_xor_sync(kWholeWarp, highest[half], 1));
      highest[half] = fmaxf(highest[half], __shfl_xor_sync(kWholeWarp, highest[half], 2));
      if (t == 0) {
        shared.peaks[group][head + half * 8] = highest[half];
      }
    }
    multiplying_barrier();  // also: all products with the queries are done
    const float base[2] = {base_of(fmaxf(shared.peaks[0][head], shared.peaks[1][head])),
                           base_of(fmaxf(shared.peaks[0][head + 8], shared.peaks[1][head + 8]))};
    float denominator = 0;
    if (group < num_tiles) {
      float first[32];
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        first[j] = j < kStashed ? stash(j) : kept[j - kStashed];
      }
      make_probabilities(group, base, first, denominator);
    }
#pragma unroll
    for (int i = 0; i < kOwnTiles - 1; ++i) {
      const std::int32_t tile = 2 * (i + 1) + group;
      if (tile < num_tiles) {
        make_probabilities(tile, base, scores[i], denominator);
      }
    }
    if (t % 2 == 0) {
      shared.denominators[group][head + t / 2 * 8] = denominator;
    }
    publish_tiles();
    multiplying_barrier();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t own = head + half * 8;
      factors[half] = kKeyUnit / denominator_of(shared.denominators[0][own], shared.denominators[1][own], p.sink[own], base[half]);
    }
  }

  /// sums += P key over all tiles, the first of which is the block's n-th, for the warpgroup's half of the columns.
  __device__ __forceinline__ void sum_row(std::int32_t num_tiles, unsigned n, float (&sums)[2][64]) const {
    constexpr unsigned kBlockBytes = kHalfBytes / 2;  ///< of keys, for one of both sums
    const auto half = static_cast<unsigned>(group);
    std::uint64_t probabilities = tile_descriptor(shared_address(shared.tiles), kPieceBytes);
    const std::uint64_t keys = tile_descriptor(shared_address(shared.keys[0]) + half * kHalfBytes, kTileBytes);
#pragma unroll 1
    for (std::int32_t tile = 0; tile < num_tiles; ++tile) {
      const unsigned own = n + static_cast<unsigned>(tile);
      const std::uint64_t values = keys + place_of(own) * (2 * kHalfBytes / 16);
      wait_barrier(shared.full(half, place_of(own)), parity_of(own));
      begin_products();
#pragma unroll
      for (unsigned step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
        for (unsigned block = 0; block < 2; ++block) {
          issue_product(sums[block], probabilities + step * 2 * kPieceBytes / 16,
                        values + (block * kBlockBytes + step * 16 * kTileRowBytes) / 16);
        }
      }
      end_products();
      probabilities += kTileBytes / 16;
      wait_products<1>();
      if (tile > 0) {
        tell(shared.empty(half, place_of(own - 1)));
      }
    }
    wait_products<0>();
    tell(shared.empty(half, place_of(n + static_cast<unsigned>(num_tiles) - 1)));
    take_sums(sums[0]);
    take_sums(sums[1]);
  }
};

__device__ __forceinline__ void multiply_rows_of_block(const AttendParams& p, ManyShared& shared) {
  const Multiplier own{shared};
  {
    RowSearch search(p, blockIdx.x);
    search.find_blocks(p);
    search.publish(p, shared, 0);
  }
  unsigned state = 0;  // four times the rows before, and the tiles before, always an even number, of which two bits matter: one register
#pragma unroll 1
  while (true) {
    const unsigned count = state / 4;
    const unsigned n = state % 4;
    const std::int32_t r = static_cast<std::int32_t>(blockIdx.x + count * gridDim.x);
    if (r >= p.rows.num_rows) {
      break;
    }
    {
      const std::int32_t after = r + static_cast<std::int32_t>(gridDim.x);
      const std::int32_t next = after < p.rows.num_rows ? after : r;
      RowSearch search(p, next);
      const RowQueries queries(p, r);
      search.find_blocks(p);
      queries.store(shared);
      publish_tiles();
      expect_queries(p, next);
      search.publish(p, shared, count + 1);  // with a barrier, behind which all queries are there
    }
    const RowKeys& row = shared.rows[place_of(count)];
    const std::int32_t num_tiles = row.num_tiles;
    float factors[2];
    own.make_row(p, row, n, factors);
    float sums[2][64] = {};
    own.sum_row(num_tiles, n + static_cast<unsigned>(num_tiles), sums);
    state = (count + 1) * 4 + (n + 2 * static_cast<unsigned>(num_tiles)) % 4;
    finish_sums(p, r, own.group, factors, sums);
    multiplying_barrier();  // products have read the probabilities: queries take their place
  }
}

#endif  // SM90

__global__ __launch_bounds__(kManyThreads, 1) void attend_many_kernel(const __grid_constant__ AttendParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::uint8_t memory[];
  ManyShared& shared = *reinterpret_cast<ManyShared*>(memory);
  if (threadIdx.x == 0) {
    shared.init_barriers();
  }
  if (threadIdx.x < kScaleCodes) {
    shared.fp4_scales[threadIdx.x] = fp4_scale(threadIdx.x);
  }
  __syncthreads();
  begin_in_turn();
  if (threadIdx.x >= 2 * kGroupThreads) {
    give_registers<kDecodeRegisters>();
    decode_rows(p, shared);
  } else {
    take_registers<kMultiplyRegisters>();
    multiply_rows_of_block(p, shared);
  }
#endif
}

}  // namespace
}  // namespace wide

bool attend_many(const AttendParams& p, cudaStream_t stream) {
  if (!runs_warpgroups() || places_of(p).all > wide::kManyPlaces || p.rope_dim != wide::kTurned) {
    return false;
  }
  start(wide::attend_many_kernel,
        {.grid = dim3(static_cast<unsigned>(std::min(num_multiprocessors(), p.rows.num_rows))),
         .block = wide::kManyThreads,
         .shared_bytes = sizeof(wide::ManyShared)},
        stream, p);
  return true;
}

}  // namespace deepinfer::cuda
