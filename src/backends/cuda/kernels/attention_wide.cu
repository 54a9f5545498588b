// Attention core for 64 heads of 512 values (docs/spec/model.md 5.4 "Core"), one kernel from queries to Q8 outputs. A cluster of blocks takes
// a row: every warpgroup scores tiles of 64 keys for all heads, the peaks of all keys meet, probabilities go to all blocks, and every block
// sums some columns of the output over all keys. No sum is cut, so the size of the cluster changes no bit: scores add the columns in order,
// outputs add the keys in order, denominators add parts of 16 keys in order.
#include <algorithm>

#include "backends/cuda/kernels/attention_keys.cuh"
#include "backends/cuda/kernels/attention_wide.h"
#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/wgmma.cuh"
#include "backends/cuda/kernels/wide_keys.cuh"

namespace deepinfer::cuda {
namespace {

constexpr std::int32_t kHeads = 64;
constexpr std::int32_t kDim = 512;
constexpr std::int32_t kThreads = 256;  ///< two warpgroups
constexpr std::int32_t kGroupThreads = 128;
constexpr std::int32_t kWarps = kThreads / 32;
constexpr std::int32_t kMaxTiles = 11;  ///< 192 window places and 512 listed rows
constexpr std::int32_t kMaxPlaces = kMaxTiles * kTileKeys;
constexpr std::int32_t kTileBytes = kHeads * kTileRowBytes;
constexpr std::int32_t kStageBytes = 8192;
constexpr std::int32_t kTileParts = 4;  ///< warps of a group: each has 16 keys of a tile

/// What a block of a cluster of kBlocks does.
template <int kBlocks>
struct Share {
  static constexpr std::int32_t kGroups = 2 * kBlocks;                             ///< warpgroups that score tiles
  static constexpr std::int32_t kTiles = (kMaxTiles + kGroups - 1) / kGroups;      ///< of a group, at most
  static constexpr int kAhead = kTiles > 1 ? 2 : 4;                                ///< loads of keys in flight, as registers allow
  static constexpr std::int32_t kColumns = kDim / kBlocks;                         ///< of the output
  static constexpr std::int32_t kGroupColumns = std::max(kColumns / 2, kTileKeys); ///< a small block leaves the sums to its first group
  static constexpr std::int32_t kSummingGroups = kColumns / kGroupColumns;
  static constexpr std::int32_t kStageKeys = kStageBytes / (2 * kColumns);         ///< decoded at once, 16 values a thread
  static constexpr std::int32_t kBlockBytes = kStageKeys * kTileRowBytes;          ///< of 64 columns of a stage
};

/// Dynamic shared memory. Two blocks share a multiprocessor.
struct Shared {
  /// Queries [8 tiles of 64 values][head], then probabilities [11 tiles of 64 keys][head].
  std::uint8_t tiles[kMaxTiles * kTileBytes];
  std::uint8_t stages[2 * kStageBytes];  ///< decoded keys; before, sums of probabilities [tile][part][head]
  const std::uint8_t* records[kMaxPlaces];
  float warp_peaks[kWarps][kHeads];
  float block_peaks[kHeads];
  float denominators[kHeads];  ///< before, the peaks of all keys
  std::int32_t taken[kMaxPlaces / 32];
  std::int32_t first_place[kMaxTiles];  ///< of the tiles that hold keys
  std::int32_t num_tiles;

  __device__ float* sums() { return reinterpret_cast<float*>(stages); }
  /// Scores of a group's first tile while it scores two more: behind the queries.
  __device__ float* stash(std::int32_t group) { return reinterpret_cast<float*>(tiles + kDim / 64 * kTileBytes) + group * kGroupThreads * 32; }
};
static_assert(sizeof(Shared) <= 113 * 1024);
static_assert(kMaxTiles * kTileParts * kHeads * sizeof(float) <= 2 * kStageBytes);

/// Barrier of one warpgroup; only one group may use it in a kernel.
__device__ __forceinline__ void group_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads) : "memory"); }

// --- queries and records ------------------------------------------------------------------------------------------

/// One group: the queries to shared memory. Of 128 neighbouring columns lane t of a product takes [32 t, 32 t + 32), eight for two products,
/// in the order of wide_keys.cuh.
__device__ void load_queries(const bf16* q, std::uint8_t* tiles) {
  const std::int32_t thread = threadIdx.x % kGroupThreads;
  const std::int32_t t = thread % 4;
  constexpr std::int32_t kPieces = kHeads * kDim / 8;
#pragma unroll 8
  for (std::int32_t i = thread; i < kPieces; i += kGroupThreads) {
    const std::int32_t step = i / 32 % 16;  // 8 columns of every lane
    const std::int32_t head = i / 512 * 8 + i / 4 % 8;
    const uint4 x = __ldg(reinterpret_cast<const uint4*>(q + head * kDim + step / 4 * 128 + t * 32 + step % 4 * 8));
    const unsigned pairs[4] = {__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632), __byte_perm(x.y, x.w, 0x5410),
                               __byte_perm(x.y, x.w, 0x7632)};
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      *reinterpret_cast<unsigned*>(tiles + step / 2 * kTileBytes + tile_offset(head, step % 2 * 4 + pair) + t * 4) = pairs[pair];
    }
  }
}

/// The other group: where the keys are, and which tiles hold any. Every load of a thread is issued before the first that depends on one.
__device__ void find_keys(const AttendParams& p, std::int64_t r, Shared& shared) {
  constexpr int kMost = (kMaxPlaces + kGroupThreads - 1) / kGroupThreads;
  const Places places = places_of(p);
  const KeyTable table(p, r);
  const std::int32_t thread = threadIdx.x % kGroupThreads;
  const std::int32_t lane = threadIdx.x % 32;
  std::int32_t row[kMost];
  std::int32_t block[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    row[i] = table.listed_row(thread + i * kGroupThreads - places.window);
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    block[i] = table.block_of(p, row[i]);
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const std::int32_t place = thread + i * kGroupThreads;
    if (place < places.all) {  // for whole warps: places are multiples of 64
      const std::uint8_t* record = place < places.window ? table.window_record(p, place) : table.compressed_record(p, row[i], block[i]);
      shared.records[place] = record;
      const unsigned taken = __ballot_sync(kWholeWarp, record != nullptr);
      if (lane == 0) {
        shared.taken[place / 32] = taken != 0 ? 1 : 0;
      }
    }
  }
  group_barrier();
  if (thread < 32) {
    const bool is_taken = lane < places.all / kTileKeys && (shared.taken[2 * lane] | shared.taken[2 * lane + 1]) != 0;
    const unsigned tiles = __ballot_sync(kWholeWarp, is_taken);
    if (is_taken) {
      shared.first_place[__popc(tiles & ((1U << lane) - 1U))] = lane * kTileKeys;
    }
    if (lane == 0) {
      shared.num_tiles = __popc(tiles);
    }
  }
}

// --- scores -------------------------------------------------------------------------------------------------------

/// Sixteen bytes of two records and what scales them.
struct Codes {
  uint4 row[2];
  unsigned scale[2];
};

__device__ __forceinline__ unsigned word_of(const uint4& x, int i) { return i < 2 ? (i == 0 ? x.x : x.y) : (i == 2 ? x.z : x.w); }

/// FP4: the lane's 32 values of 128 columns, two scales. 4 pieces.
struct Fp4Pieces {
  static constexpr std::int32_t kPieces = 4;
  static constexpr std::int32_t kSteps = 4;  ///< of 8 values

  static __device__ __forceinline__ Codes load(const std::uint8_t* const (&record)[2], std::int32_t piece, std::int32_t t) {
    Codes out{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (record[i] != nullptr) {
        out.row[i] = __ldg(reinterpret_cast<const uint4*>(record[i] + piece * 64 + t * 16));
        out.scale[i] = __ldg(reinterpret_cast<const unsigned short*>(record[i] + kDim / 2 + piece * 8 + t * 2));
      }
    }
    return out;
  }
  static __device__ __forceinline__ void decode(const Codes& x, int i, int step, unsigned (&out)[4]) {
    decode_fp4(word_of(x.row[i], step), fp4_scale(x.scale[i] >> step / 2 * 8 & 0xFFU), out);
  }
};

/// FP8: half of the lane's 32 values of 128 columns. 8 pieces.
struct Fp8Pieces {
  static constexpr std::int32_t kPieces = 8;
  static constexpr std::int32_t kSteps = 2;

  static __device__ __forceinline__ Codes load(const std::uint8_t* const (&record)[2], std::int32_t piece, std::int32_t t) {
    Codes out{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (record[i] != nullptr) {
        out.row[i] = __ldg(reinterpret_cast<const uint4*>(record[i] + piece / 2 * 128 + t * 32 + piece % 2 * 16));
        out.scale[i] = __ldg(record[i] + kDim + piece / 2 * 4 + t);
      }
    }
    return out;
  }
  static __device__ __forceinline__ void decode(const Codes& x, int i, int step, unsigned (&out)[4]) {
    const unsigned nan = nan_marks(x.row[i].x) | nan_marks(x.row[i].y) | nan_marks(x.row[i].z) | nan_marks(x.row[i].w);
    decode_fp8(word_of(x.row[i], 2 * step), word_of(x.row[i], 2 * step + 1), nan != 0 ? kNanPair : fp8_scale(x.scale[i]), out);
  }
};

/// sums = keys q for the two keys of a lane; `queries`: shared address. kAhead: pieces in flight.
template <class Format, int kAhead>
__device__ __forceinline__ void multiply_keys(const std::uint8_t* const (&record)[2], unsigned queries, float (&sums)[32]) {
  static_assert(Format::kPieces % kAhead == 0);
  const std::int32_t t = threadIdx.x % 4;
  unsigned a[2][2][4];  // two batches of two products, in turn
  Codes codes[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    codes[i] = Format::load(record, i, t);
  }
#pragma unroll 1
  for (std::int32_t first_piece = 0; first_piece < Format::kPieces; first_piece += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int step = 0; step < Format::kSteps; ++step) {
        wait_products<1>();
        unsigned upper[4];
        unsigned lower[4];
        Format::decode(codes[i], 0, step, upper);
        Format::decode(codes[i], 1, step, lower);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          a[step % 2][half][0] = upper[2 * half];
          a[step % 2][half][1] = lower[2 * half];
          a[step % 2][half][2] = upper[2 * half + 1];
          a[step % 2][half][3] = lower[2 * half + 1];
        }
        const std::int32_t first = ((first_piece + i) * Format::kSteps + step) * 2;  // product
        const unsigned tile = queries + static_cast<unsigned>(first / 4 * kTileBytes);
        begin_products();
        multiply_by_rows(sums, a[step % 2][0], tile, first % 4);
        multiply_by_rows(sums, a[step % 2][1], tile, first % 4 + 1);
        end_products();
      }
      if (first_piece + i + kAhead < Format::kPieces) {
        codes[i] = Format::load(record, first_piece + i + kAhead, t);
      }
    }
  }
  wait_products<0>();
  take_sums(sums);
}

/// x[2 j + i]: of the heads 8 j + 2 t + i, t = lane % 4. Joins the values of all lanes with the same t; a lane keeps those of the heads
/// 8 (lane / 4) + 2 t + {0, 1} in x[0] and x[1]. Each step halves what a lane holds.
template <int kKept = 8, class Join>
__device__ __forceinline__ void join_lanes(float (&x)[16], const Join& join) {
  const bool is_upper = (threadIdx.x & 2U * kKept) != 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const float lower = x[i];
    const float upper = x[i + kKept];
    x[i] = join(is_upper ? upper : lower, __shfl_xor_sync(kWholeWarp, is_upper ? lower : upper, 2 * kKept));
  }
  if constexpr (kKept > 2) {
    join_lanes<kKept / 2>(x, join);
  }
}

/// Scores of a tile for all heads, -infinity for empty places, and their peaks into those of the warp.
/// scores[4 j + i]: key 16 warp + lane / 4 + i / 2 * 8, head 8 j + lane % 4 * 2 + i % 2.
template <int kAhead>
__device__ __forceinline__ void score_tile(const AttendParams& p, Shared& shared, std::int32_t first_place, float (&scores)[32]) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const std::int32_t key = first_place + warp % kTileParts * 16 + lane / 4;
  const std::uint8_t* const record[2] = {shared.records[key], shared.records[key + 8]};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    scores[i] = 0;
  }
  const unsigned queries = shared_address(shared.tiles);
  if (first_place < places_of(p).window) {
    multiply_keys<Fp8Pieces, kAhead>(record, queries, scores);
  } else {
    multiply_keys<Fp4Pieces, kAhead>(record, queries, scores);
  }
  constexpr float kFactor = 0.04419417382415922F * kKeyUnit;  // 512^-0.5
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    scores[i] = record[i / 2 % 2] == nullptr ? -INFINITY : scores[i] * kFactor;
  }
  float peaks[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    peaks[i] = fmaxf(scores[i / 2 * 4 + i % 2], scores[i / 2 * 4 + i % 2 + 2]);
  }
  join_lanes(peaks, [](float x, float y) { return fmaxf(x, y); });
  float2& own = *reinterpret_cast<float2*>(shared.warp_peaks[warp] + lane * 2);
  own = {fmaxf(own.x, peaks[0]), fmaxf(own.y, peaks[1])};
}

// --- probabilities ------------------------------------------------------------------------------------------------

__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
  unsigned out = 0;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

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
    const float2 peak = *reinterpret_cast<const float2*>(shared.denominators + 8 * j + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[4 * j + i] = expf(scores[4 * j + i] - (i % 2 == 0 ? peak.x : peak.y));
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

/// Denominator of a head: sum of P + exp(sink - peak) of the unrounded P; 1 without keys. NaN scores make it NaN.
__device__ __forceinline__ float denominator_of(const AttendParams& p, Shared& shared, std::int32_t head) {
  float sum = 0;
#pragma unroll 4
  for (std::int32_t i = 0; i < shared.num_tiles * kTileParts; ++i) {
    sum += shared.sums()[i * kHeads + head];
  }
  return sum == 0.0F ? 1.0F : sum + expf(p.sink[head] - shared.denominators[head]);  // with a key the peak alone gives 1
}

// --- outputs ------------------------------------------------------------------------------------------------------

/// Sixteen neighbouring values of a key as stored.
struct StageCodes {
  uint4 codes;  // FP4: two words
  unsigned scale;
  bool is_window;
};

/// Decodes keys stage by stage, tile after tile: every thread 16 columns of one key.
template <int kBlocks>
struct Stage {
  using S = Share<kBlocks>;
  static constexpr std::int32_t kLanes = S::kColumns / 16;  ///< threads of a key
  static constexpr std::int32_t kPerTile = kTileKeys / S::kStageKeys;

  std::int32_t window;  ///< places
  std::int32_t first_column;

  __device__ __forceinline__ std::int32_t own_column() const { return static_cast<std::int32_t>(threadIdx.x) % kLanes * 16; }

  __device__ __forceinline__ StageCodes load(const Shared& shared, std::int32_t stage) const {
    const std::int32_t tile_place = shared.first_place[stage / kPerTile];
    const std::int32_t place = tile_place + stage % kPerTile * S::kStageKeys + static_cast<std::int32_t>(threadIdx.x) / kLanes;
    const std::uint8_t* record = shared.records[place];
    const std::int32_t column = first_column + own_column();
    StageCodes out{{0, 0, 0, 0}, 0, tile_place < window};
    if (record != nullptr && out.is_window) {
      out.codes = __ldg(reinterpret_cast<const uint4*>(record + column));
      out.scale = __ldg(record + kDim + column / kQ8Group);
    } else if (record != nullptr) {
      const uint2 codes = __ldg(reinterpret_cast<const uint2*>(record + column / 2));
      out.codes = {codes.x, codes.y, 0, 0};
      out.scale = __ldg(record + kDim / 2 + column / kQ4KvGroup);
    }
    return out;
  }

  /// NaN codes may come out as numbers: their probabilities are NaN already.
  __device__ __forceinline__ void store(const StageCodes& x, std::uint8_t* stage) const {
    const std::int32_t key = static_cast<std::int32_t>(threadIdx.x) / kLanes;
    const std::int32_t column = own_column();
    std::uint8_t* block = stage + column / 64 * S::kBlockBytes;
    const bool is_swapped = column / 64 % 2 != 0;  // halves in the other order, so that neighbouring threads meet other banks
    const unsigned scale = x.is_window ? fp8_scale(x.scale) : fp4_scale(x.scale);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_second = is_swapped != (i == 1);
      unsigned values[4];
      if (x.is_window) {
        decode_fp8(is_second ? x.codes.z : x.codes.x, is_second ? x.codes.w : x.codes.y, scale, values);
      } else {
        decode_fp4(is_second ? x.codes.y : x.codes.x, scale, values);
      }
      *reinterpret_cast<uint4*>(block + tile_offset(key, column % 64 / 8 + (is_second ? 1 : 0))) = {values[0], values[1], values[2], values[3]};
    }
  }
};

/// sums = P key over all keys for the columns of the block; sums of a group: [head][kGroupColumns] as products leave them.
template <int kBlocks>
__device__ __forceinline__ void sum_values(const AttendParams& p, Shared& shared, unsigned rank,
                                           float (&sums)[Share<kBlocks>::kGroupColumns / 2]) {
  using S = Share<kBlocks>;
  const Stage<kBlocks> stage = {places_of(p).window, static_cast<std::int32_t>(rank) * S::kColumns};
  const std::int32_t group = threadIdx.x / kGroupThreads;
  const std::int32_t count = shared.num_tiles * Stage<kBlocks>::kPerTile;
  const unsigned probabilities = shared_address(shared.tiles);
  StageCodes codes[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i < count) {
      codes[i] = stage.load(shared, i);
    }
  }
#pragma unroll 1
  for (std::int32_t first = 0; first < count; first += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t now = first + i;
      if (now >= count) {
        break;
      }
      stage.store(codes[i], shared.stages + i * kStageBytes);
      publish_tiles();
      wait_products<0>();
      __syncthreads();  // the stage is whole; products with the one before are done
      if (group < S::kSummingGroups) {
        const unsigned values = shared_address(shared.stages + i * kStageBytes) +
                                static_cast<unsigned>(group * S::kGroupColumns / 64 * S::kBlockBytes);
        const std::int32_t first_key = now * S::kStageKeys;
        begin_products();
#pragma unroll
        for (std::int32_t key = 0; key < S::kStageKeys; key += 16) {
          multiply_tiles(sums, probabilities + static_cast<unsigned>((first_key + key) / kTileKeys * kTileBytes),
                         (first_key + key) % kTileKeys / 16, values + static_cast<unsigned>(key * kTileRowBytes), S::kBlockBytes);
        }
        end_products();
      }
      if (now + 2 < count) {
        codes[i] = stage.load(shared, now + 2);
      }
    }
  }
  wait_products<0>();
  take_sums(sums);
}

/// A lane's pair of an eight of columns, (t, t + 4), to neighbouring columns: lanes 0, 2, 1, 3 have 0, 2, 4, 6 and the next.
__device__ __forceinline__ unsigned neighbours(unsigned pair) {
  const unsigned other = __shfl_xor_sync(kWholeWarp, pair, 1);
  return threadIdx.x % 2 == 0 ? __byte_perm(pair, other, 0x5410) : __byte_perm(other, pair, 0x7632);
}

/// Divides and rounds the sums of a group's columns [first_column, first_column + kCount): to out[head][kStride].
template <int kCount, int kStride>
__device__ __forceinline__ void round_outputs(const Shared& shared, std::int32_t first_column, const float (&sums)[kCount / 2], bf16* out) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t t = lane % 4;
  const std::int32_t own = t == 0 || t == 3 ? t : 3 - t;  // pair of an eight behind neighbours()
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t head = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4 + half * 8;
    const float factor = kKeyUnit / shared.denominators[head];
#pragma unroll
    for (int j = 0; j < kCount / 8; ++j) {
      const float* x = sums + j * 4 + half * 2;
      const unsigned pair = neighbours(bf16_pair(x[0] * factor, x[1] * factor));
      *reinterpret_cast<unsigned*>(out + head * kStride + first_column + j * 8 + own * 2) = pair;
    }
  }
}

/// Two E4M3 codes, low first; saturates.
__device__ __forceinline__ unsigned e4m3_codes(float low, float high) {
  std::uint16_t out = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}

/// Q8 of a group that lies in four neighbouring lanes, eight values each.
__device__ __forceinline__ void store_q8_group(const bf16 (&x)[8], std::uint8_t* codes, std::uint8_t* scale_code) {
  static_assert(kQ8Group == 4 * 8);
  float amax = kQ8Floor;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    amax = fmaxf(amax, fabsf(to_float(x[i])));  // skips NaN
  }
  amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
  const std::uint8_t scale = power_of_two_scale(amax, kE4M3Max);
  const float inverse = 1.0F / ue8m0_to_float(scale);
  unsigned words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words[i] = e4m3_codes(to_float(x[4 * i]) * inverse, to_float(x[4 * i + 1]) * inverse) |
               e4m3_codes(to_float(x[4 * i + 2]) * inverse, to_float(x[4 * i + 3]) * inverse) << 16;
  }
  *reinterpret_cast<uint2*>(codes) = {words[0], words[1]};
  if (threadIdx.x % 4 == 0) {
    *scale_code = scale;
  }
}

/// Inverse rotation and Q8 of the columns [first_column, first_column + kCount) of all heads of row r; in[head][kStride].
template <int kCount, int kStride>
__device__ __forceinline__ void finish_outputs(const AttendParams& p, std::int64_t r, std::int32_t first_column, const bf16* in) {
  constexpr std::int32_t kPieces = kCount / 8;  ///< of a head
  const std::int32_t first_turned = kDim - p.rope_dim;
#pragma unroll 1
  for (std::int32_t i = threadIdx.x; i < kHeads * kPieces; i += kThreads) {
    const std::int32_t column = first_column + i % kPieces * 8;
    const std::int64_t line = r * kHeads + i / kPieces;
    union {
      uint4 words;
      bf16 x[8];
    } piece{*reinterpret_cast<const uint4*>(in + i / kPieces * kStride + i % kPieces * 8)};
    if (column + 8 > first_turned) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const std::int32_t turned = column + 2 * pair - first_turned;
        if (turned >= 0) {
          const std::int64_t place = r * (p.rope_dim / 2) + turned / 2;
          rotate_pair(piece.x + 2 * pair, p.rope.cos[place], -p.rope.sin[place]);
        }
      }
    }
    if (p.o != nullptr) {
      *reinterpret_cast<uint4*>(row_at(p.o, line, kDim) + column) = piece.words;
    }
    if (p.q8.codes != nullptr) {
      store_q8_group(piece.x, row_at(p.q8.codes, line, kDim) + column, row_at(p.q8.scales, line, kDim / kQ8Group) + column / kQ8Group);
    }
  }
}

// --- the kernel ---------------------------------------------------------------------------------------------------

template <int kBlocks>
__global__ __launch_bounds__(kThreads, 2) void attend_kernel(AttendParams p) {
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
    shared.denominators[threadIdx.x] = peak == -INFINITY ? 0.0F : peak;  // so that empty places become exp(-infinity) in any case
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
    denominator = denominator_of(p, shared, static_cast<std::int32_t>(threadIdx.x));
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
  launch_clusters(attend_kernel<kBlocks>,
                  {.grid = dim3(static_cast<unsigned>(p.rows.num_rows) * kBlocks), .threads = kThreads, .cluster = kBlocks, .shared_bytes = sizeof(Shared)},
                  stream, p);
}

}  // namespace

bool is_wide(const AttendParams& p) { return p.heads == kHeads && p.head_dim == kDim && places_of(p).all <= kMaxPlaces; }

void attend_wide(const AttendParams& p, cudaStream_t stream) {
  // As many blocks as run at once on the 132 multiprocessors of a Hopper GPU, two on each.
  constexpr std::int32_t kSlots = 264;
  if (p.rows.num_rows <= kSlots / 8) {
    launch<8>(p, stream);
  } else if (p.rows.num_rows <= kSlots / 4) {
    launch<4>(p, stream);
  } else {
    launch<2>(p, stream);
  }
}

}  // namespace deepinfer::cuda
