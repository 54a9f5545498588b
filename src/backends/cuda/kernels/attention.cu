// Attention core: one softmax over window rows and listed rows with a sink (docs/spec/model.md 5.4 "Core").
// Keys of a query lie in fixed places: window rows first (max_window places), then its list. Scores of all places go through memory, so
// that the peak is the peak of all keys, as in the formula, and both products spread over the whole GPU. Tensor-core products; a row's
// sums do not depend on other rows.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/mma.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kTileKeys = 64;
constexpr int kTileColumns = 128;  // of the output, a block
constexpr int kHeadTile = 16;

struct Places {
  std::int32_t window = 0;  ///< multiple of kTileKeys
  std::int32_t all = 0;     ///< multiple of kTileKeys
};

__host__ __device__ constexpr std::int32_t round_up(std::int32_t x, std::int32_t unit) { return (x + unit - 1) / unit * unit; }

__host__ __device__ Places places_of(const AttendParams& p) {
  const std::int32_t window = round_up(p.max_window, kTileKeys);
  return {window, window + (p.list != nullptr ? round_up(p.top_k, kTileKeys) : 0)};
}

struct Record {
  const std::uint8_t* codes = nullptr;  ///< null: the place is empty
  bool is_window = false;
};

__device__ Record record_at(const AttendParams& p, const Places& places, std::int64_t r, std::int32_t place) {
  const std::int64_t chunk = p.rows.chunk[r];
  if (place < places.window) {
    const std::int64_t t = static_cast<std::int64_t>(p.window_low[r]) + place;
    if (t > p.window_high[r]) {
      return {};
    }
    const std::int64_t first = p.chunks.first_position[chunk];
    const std::int32_t bytes = window_record_bytes(p.head_dim);
    if (t >= first) {
      return {row_at(p.own, p.chunks.first_row[chunk] + t - first, bytes), true};
    }
    return {row_at(p.ring, static_cast<std::int64_t>(p.chunks.slot[chunk]) * p.ring_rows + t % p.ring_rows, bytes), true};
  }
  const std::int32_t l = place - places.window;
  const std::int64_t j = l < p.top_k ? row_at(p.list, r, p.top_k)[l] : -1;
  if (j < 0) {
    return {};
  }
  const std::int64_t block = row_at(p.chunks.block_table, chunk, p.chunks.max_blocks)[j / p.rows_per_block];
  return {row_at(p.compressed, block * p.rows_per_block + j % p.rows_per_block, compressed_record_bytes(p.head_dim)), false};
}

/// Value c of a record, exact in bf16.
__device__ __forceinline__ bf16 key_value(const Record& record, std::int32_t head_dim, std::int32_t c) {
  if (record.is_window) {
    return to_bf16(e4m3_to_float(record.codes[c]) * ue8m0_to_float(record.codes[head_dim + c / kQ8Group]));
  }
  return to_bf16(e2m1_value(nibble(record.codes, c)) * e4m3_to_float(record.codes[head_dim / 2 + c / kQ4KvGroup]));
}

/// Eight neighbouring values of a record as four words.
__device__ __forceinline__ uint4 eight_values(const Record& record, std::int32_t head_dim, std::int32_t c) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned low = key_value(record, head_dim, c + 2 * i).bits;
    words[i] = low | static_cast<unsigned>(key_value(record, head_dim, c + 2 * i + 1).bits) << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

/// Decodes columns [first, first + width) of the 64 keys of a tile to shared memory, rows `stride` apart; empty places become zeros.
/// `records`: the tile's records in shared memory. Ends with a barrier.
__device__ void load_keys(const AttendParams& p, const Record* records, std::int32_t first, std::int32_t width, std::int32_t stride,
                          bf16* keys) {
  const std::int32_t pieces = width / 8;
  for (std::int32_t i = threadIdx.x; i < kTileKeys * pieces; i += kThreads) {
    const Record& record = records[i / pieces];
    const std::int32_t c = i % pieces * 8;
    const uint4 value = record.codes == nullptr ? uint4{0, 0, 0, 0} : eight_values(record, p.head_dim, first + c);
    *reinterpret_cast<uint4*>(keys + i / pieces * stride + c) = value;
  }
  __syncthreads();
}

/// Records of a tile to shared memory; true when any place is taken. Ends with a barrier.
__device__ bool find_records(const AttendParams& p, const Places& places, std::int64_t r, std::int32_t tile, Record* records) {
  bool any = false;
  if (threadIdx.x < kTileKeys) {
    records[threadIdx.x] = record_at(p, places, r, tile * kTileKeys + static_cast<std::int32_t>(threadIdx.x));
    any = records[threadIdx.x].codes != nullptr;
  }
  return __syncthreads_or(any);
}

/// Scores of one tile of keys for all heads of a row: scores[row][head][place]. Block (tile, row); a warp takes every fourth 16 heads.
__global__ __launch_bounds__(kThreads) void score_kernel(AttendParams p, std::int64_t first_row, float* scores) {
  extern __shared__ __align__(16) bf16 keys[];
  __shared__ Record records[kTileKeys];
  const Places places = places_of(p);
  const std::int64_t local = blockIdx.y;
  const std::int64_t r = first_row + local;
  const std::int32_t d = p.head_dim;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  float* out = scores + local * p.heads * places.all + static_cast<std::int64_t>(blockIdx.x) * kTileKeys;
  const bool any = find_records(p, places, r, static_cast<std::int32_t>(blockIdx.x), records);
  const std::int32_t stride = d + 8;
  if (any) {
    load_keys(p, records, 0, d, stride, keys);
  }
  const auto factor = static_cast<float>(1.0 / sqrt(static_cast<double>(d)));
  for (std::int32_t head0 = threadIdx.x / 32 * kHeadTile; head0 < p.heads; head0 += kWarps * kHeadTile) {
    float acc[kTileKeys / 8][4] = {};
    const bf16* q0 = row_at(p.q, r * p.heads + min(head0 + g, p.heads - 1), d);
    const bf16* q1 = row_at(p.q, r * p.heads + min(head0 + g + 8, p.heads - 1), d);
    for (std::int32_t k = 0; any && k < d; k += 32) {
      // A lane takes values [8 t, 8 t + 8) of both sides, so that the order within an instruction agrees.
      const uint4 a0 = *reinterpret_cast<const uint4*>(q0 + k + t * 8);
      const uint4 a1 = *reinterpret_cast<const uint4*>(q1 + k + t * 8);
      const unsigned first_half[4] = {a0.x, a1.x, a0.y, a1.y};
      const unsigned second_half[4] = {a0.z, a1.z, a0.w, a1.w};
#pragma unroll
      for (int j = 0; j < kTileKeys / 8; ++j) {
        const uint4 b = *reinterpret_cast<const uint4*>(keys + (j * 8 + g) * stride + k + t * 8);
        multiply(acc[j], first_half, b.x, b.y);
        multiply(acc[j], second_half, b.z, b.w);
      }
    }
#pragma unroll
    for (int j = 0; j < kTileKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t head = head0 + g + i / 2 * 8;
        const std::int32_t key = j * 8 + t * 2 + i % 2;
        if (head < p.heads) {
          out[static_cast<std::int64_t>(head) * places.all + key] = records[key].codes == nullptr ? -INFINITY : acc[j][i] * factor;
        }
      }
    }
  }
}

/// Largest score of a head: lanes stride over the places. NaN scores are skipped here and come through the probabilities.
__device__ float peak_of(const float* scores, std::int32_t count) {
  float peak = -INFINITY;
  for (std::int32_t i = threadIdx.x % 32; i < count; i += 32) {
    peak = fmaxf(peak, scores[i]);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, offset));
  }
  return peak;
}

__device__ __forceinline__ float probability_of(float score, float peak) { return score == -INFINITY ? 0.0F : expf(score - peak); }

__device__ __forceinline__ unsigned pack(float low, float high) {
  return to_bf16(low).bits | static_cast<unsigned>(to_bf16(high).bits) << 16;
}

/// Four 8 x 8 tiles, transposed: lanes 0-7, 8-15, 16-23, 24-31 give the rows.
__device__ __forceinline__ uint4 load_transposed(const bf16* row) {
  uint4 out;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "r"(address));
  return out;
}

/// o = (sum bf16(P) key) / (sum P + exp(sink - peak)), P = exp(score - peak). Block (columns, row), a warp takes every fourth 16 heads.
__global__ __launch_bounds__(kThreads) void output_kernel(AttendParams p, std::int64_t first_row, const float* scores, bf16* o) {
  constexpr std::int32_t kStride = kTileColumns + 8;
  __shared__ __align__(16) bf16 keys[kTileKeys * kStride];
  __shared__ Record records[kTileKeys];
  const Places places = places_of(p);
  const std::int64_t local = blockIdx.y;
  const std::int64_t r = first_row + local;
  const std::int32_t d = p.head_dim;
  const std::int32_t column0 = blockIdx.x * kTileColumns;
  const std::int32_t width = min(kTileColumns, d - column0);
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  // Every warp takes part in every round, since tiles of keys are loaded together.
  const std::int32_t rounds = (p.heads + kWarps * kHeadTile - 1) / (kWarps * kHeadTile);
  for (std::int32_t round = 0; round < rounds; ++round) {
    const std::int32_t head0 = (round * kWarps + static_cast<std::int32_t>(threadIdx.x / 32)) * kHeadTile;
    float peak[2] = {-INFINITY, -INFINITY};
    for (std::int32_t h = 0; h < kHeadTile && head0 + h < p.heads; ++h) {
      const float value = peak_of(scores + (local * p.heads + head0 + h) * places.all, places.all);
      if (h % 8 == g) {
        peak[h / 8] = value;
      }
    }
    float acc[kTileColumns / 8][4] = {};
    float denominator[2] = {0, 0};
    for (std::int32_t tile = 0; tile < places.all / kTileKeys; ++tile) {
      if (!find_records(p, places, r, tile, records)) {
        continue;
      }
      load_keys(p, records, column0, width, kStride, keys);
#pragma unroll
      for (int k = 0; k < kTileKeys; k += 16) {
        unsigned a[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // heads g and g + 8
          const std::int32_t head = min(head0 + g + half * 8, p.heads - 1);
          const float* line = scores + (local * p.heads + head) * places.all + tile * kTileKeys + k + t * 2;
          const float2 low = *reinterpret_cast<const float2*>(line);
          const float2 high = *reinterpret_cast<const float2*>(line + 8);
          const float p0 = probability_of(low.x, peak[half]);
          const float p1 = probability_of(low.y, peak[half]);
          const float p2 = probability_of(high.x, peak[half]);
          const float p3 = probability_of(high.y, peak[half]);
          denominator[half] += (p0 + p1) + (p2 + p3);
          a[half] = pack(p0, p1);
          a[half + 2] = pack(p2, p3);
        }
#pragma unroll
        for (int c = 0; c < kTileColumns; c += 16) {
          if (c < width) {
            // Rows k + lane % 16, columns c and c + 8.
            const uint4 b = load_transposed(keys + (k + lane % 16) * kStride + c + lane / 16 * 8);
            multiply(acc[c / 8], a, b.x, b.y);
            multiply(acc[c / 8 + 1], a, b.z, b.w);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      denominator[half] += __shfl_xor_sync(kWholeWarp, denominator[half], 1);
      denominator[half] += __shfl_xor_sync(kWholeWarp, denominator[half], 2);
      const std::int32_t head = head0 + g + half * 8;
      if (head >= p.heads) {
        continue;
      }
      const bool has_keys = peak[half] != -INFINITY || denominator[half] != 0.0F;
      const float sum = has_keys ? denominator[half] + expf(p.sink[head] - peak[half]) : 1.0F;
#pragma unroll
      for (int c = 0; c < kTileColumns; c += 8) {
        if (c < width) {
          bf16* out = row_at(o, r * p.heads + head, d) + column0 + c + t * 2;
          out[0] = to_bf16(acc[c / 8][half * 2] / sum);
          out[1] = to_bf16(acc[c / 8][half * 2 + 1] / sum);
        }
      }
    }
  }
}

/// Inverse rotation at the query's position, then Q8. One block a head of a row. `o` may be p.o.
__global__ void finish_kernel(AttendParams p, bf16* o) {
  extern __shared__ bf16 head[];
  const std::int64_t r = blockIdx.x / p.heads;
  const std::int64_t part = blockIdx.x;
  const std::int32_t d = p.head_dim;
  bf16* values = row_at(o, part, d);
  for (std::int32_t c = threadIdx.x; c < d; c += blockDim.x) {
    head[c] = values[c];
  }
  __syncthreads();
  const std::int32_t half = p.rope_dim / 2;
  for (std::int32_t i = threadIdx.x; i < half; i += blockDim.x) {
    rotate_pair(head + (d - p.rope_dim) + 2 * i, p.rope.cos[r * half + i], -p.rope.sin[r * half + i]);
  }
  __syncthreads();
  for (std::int32_t c = threadIdx.x; c < d; c += blockDim.x) {
    if (p.o != nullptr) {
      row_at(p.o, part, d)[c] = head[c];
    }
    if (p.q8.codes != nullptr) {
      store_q8(head[c], c, row_at(p.q8.codes, part, d), row_at(p.q8.scales, part, d / kQ8Group));
    }
  }
}

}  // namespace

std::int64_t attend_scores_per_row(const AttendParams& p) { return static_cast<std::int64_t>(p.heads) * places_of(p).all; }

void attend_rows(const AttendParams& p, std::int64_t first_row, std::int64_t rows, float* scores, bf16* o, cudaStream_t stream) {
  const Places places = places_of(p);
  const std::size_t key_bytes = static_cast<std::size_t>(kTileKeys) * static_cast<std::size_t>(p.head_dim + 8) * sizeof(bf16);
  cudaFuncSetAttribute(score_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(key_bytes));
  score_kernel<<<dim3(static_cast<unsigned>(places.all / kTileKeys), static_cast<unsigned>(rows)), kThreads, key_bytes, stream>>>(
      p, first_row, scores);
  const dim3 grid(static_cast<unsigned>((p.head_dim + kTileColumns - 1) / kTileColumns), static_cast<unsigned>(rows));
  output_kernel<<<grid, kThreads, 0, stream>>>(p, first_row, scores, o);
}

void attend_finish(const AttendParams& p, bf16* o, cudaStream_t stream) {
  finish_kernel<<<static_cast<unsigned>(p.rows.num_rows * p.heads), kThreads, p.head_dim * sizeof(bf16), stream>>>(p, o);
}

}  // namespace deepinfer::cuda
