// Attention core: one softmax over window rows and listed rows with a sink (docs/spec/model.md 5.4 "Core"), for any number of heads and
// values a head; the shape of the released model has a kernel of its own (attention_wide.cu). Scores and probabilities of all places go
// through memory, so that the peak is the peak of all keys, as in the formula, and both products spread over the whole GPU. Tensor-core
// products; a row's sums do not depend on other rows.
#include "backends/cuda/kernels/attention_keys.cuh"
#include "backends/cuda/kernels/attention_wide.h"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHeadTile = 16;
constexpr int kTileColumns = 128;  ///< of the output, a block

struct Record {
  const std::uint8_t* codes = nullptr;  ///< null: the place is empty
  bool is_window = false;
};

/// Two bf16 (low half first) that hold codes times 2^-kBias to two values times `scale`; exact, since a value has at most four bits.
template <int kBias>
__device__ __forceinline__ unsigned scaled_pair(unsigned pair, float scale) {
  constexpr float kUnit = kBias == 120 ? 0x1p120F : 0x1p126F;
  const float low = __uint_as_float(pair << 16) * kUnit * scale;
  const float high = __uint_as_float(pair & 0xFFFF0000U) * kUnit * scale;
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

/// Bytes 0 and 1 of `codes`, E4M3, as a pair of bf16 times 2^-120; NaN codes become NaN.
__device__ __forceinline__ unsigned e4m3_pair(unsigned codes) {
  const unsigned spread = __byte_perm(codes, 0, 0x4140);
  unsigned out = (spread << 8 & 0x80008000U) | (spread << 4 & 0x07F007F0U);
  out = (out & 0x07F0U) == 0x07F0U ? out | 0x7FC0U : out;
  return (out & 0x07F00000U) == 0x07F00000U ? out | 0x7FC00000U : out;
}

/// Nibbles 0 and 1 of `codes`, E2M1, as a pair of bf16 times 2^-126.
__device__ __forceinline__ unsigned e2m1_pair(unsigned codes) {
  const unsigned spread = (codes & 0xFU) | (codes & 0xF0U) << 12;
  return (spread << 12 & 0x80008000U) | (spread << 6 & 0x01C001C0U);
}

/// Eight neighbouring values of a record, from column c on, as four pairs.
__device__ __forceinline__ uint4 eight_values(const Record& record, std::int32_t head_dim, std::int32_t c) {
  uint4 out;
  if (record.is_window) {
    const std::uint8_t* codes = record.codes + c;  // records have odd lengths: bytes, not words
    const float scale = ue8m0_to_float(record.codes[head_dim + c / kQ8Group]);
    const auto pair = [&](int i) { return scaled_pair<120>(e4m3_pair(codes[i] | codes[i + 1] << 8), scale); };
    out = {pair(0), pair(2), pair(4), pair(6)};
  } else {
    const std::uint8_t* codes = record.codes + c / 2;
    const float scale = e4m3_to_float(record.codes[head_dim / 2 + c / kQ4KvGroup]);
    const auto pair = [&](int i) { return scaled_pair<126>(e2m1_pair(codes[i]), scale); };
    out = {pair(0), pair(1), pair(2), pair(3)};
  }
  return out;
}

/// Decodes columns [first, first + width) of kTileKeys keys to shared memory, rows `stride` apart; empty places become zeros.
/// `records`: theirs, in shared memory. Ends with a barrier.
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

/// Records of kTileKeys places to shared memory; true when any place is taken. Ends with a barrier.
__device__ bool find_records(const AttendParams& p, const Places& places, std::int64_t r, std::int32_t first_place, Record* records) {
  bool any = false;
  if (threadIdx.x < kTileKeys) {
    const std::int32_t place = first_place + static_cast<std::int32_t>(threadIdx.x);
    records[threadIdx.x] = {KeyTable(p, r).record(p, places, place), place < places.window};
    any = records[threadIdx.x].codes != nullptr;
  }
  return __syncthreads_or(any);
}

/// Scores of some keys for all heads of a row: scores[row][head][place]. Block (keys, row); a warp takes every fourth 16 heads.
__global__ __launch_bounds__(kThreads) void score_kernel(AttendParams p, std::int64_t first_row, float* scores) {
  begin_in_turn();
  extern __shared__ __align__(16) bf16 keys[];
  __shared__ Record records[kTileKeys];
  const Places places = places_of(p);
  const std::int64_t local = blockIdx.y;
  const std::int64_t r = first_row + local;
  const std::int32_t d = p.head_dim;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const auto first_place = static_cast<std::int32_t>(blockIdx.x) * kTileKeys;
  float* out = scores + local * p.heads * places.all + first_place;
  const bool any = find_records(p, places, r, first_place, records);
  const std::int32_t stride = d + 8;
  if (any) {
    load_keys(p, records, 0, d, stride, keys);
  }
  const auto factor = static_cast<float>(1.0 / sqrt(static_cast<double>(d)));
  for (std::int32_t head0 = threadIdx.x / 32 * kHeadTile; head0 < p.heads; head0 += kWarps * kHeadTile) {
    float acc[kTileKeys / 8][4] = {};
    const bf16* q0 = row_at(p.q, r * p.heads + min(head0 + g, p.heads - 1), d);
    const bf16* q1 = row_at(p.q, r * p.heads + min(head0 + g + 8, p.heads - 1), d);
#pragma unroll 4
    for (std::int32_t k = 0; k < (any ? d : 0); k += 32) {
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

/// One warp a head of a row: P = exp(score - peak) rounded to bf16, and the denominator sum P + exp(sink - peak) of the unrounded P.
/// A head without keys gets the denominator 1. NaN scores make the head NaN.
__global__ __launch_bounds__(kThreads) void softmax_kernel(AttendParams p, const float* scores, bf16* probabilities, float* denominators,
                                                           std::int64_t num_lines) {
  begin_in_turn();
  const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (line >= num_lines) {
    return;
  }
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t count = places_of(p).all;
  const float* score = row_at(scores, line, count);
  float peak = -INFINITY;
  for (std::int32_t i = lane; i < count; i += 32) {
    peak = fmaxf(peak, score[i]);  // skips NaN, which comes through its probability
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, offset));
  }
  float sum = 0;
  for (std::int32_t i = lane; i < count; i += 32) {
    const float probability = score[i] == -INFINITY ? 0.0F : expf(score[i] - peak);
    sum += probability;
    row_at(probabilities, line, count)[i] = to_bf16(probability);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, offset);
  }
  if (lane == 0) {
    const bool has_keys = peak != -INFINITY || sum != 0.0F;
    denominators[line] = has_keys ? sum + expf(p.sink[line % p.heads] - peak) : 1.0F;
  }
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

/// o = (sum P key) / denominator for some columns, all heads of a row; a warp takes every fourth 16 heads. Grid (columns, row).
__global__ __launch_bounds__(kThreads) void output_kernel(AttendParams p, std::int64_t first_row, const bf16* probabilities,
                                                          const float* denominators, bf16* o) {
  begin_in_turn();
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
    const bf16* line0 = row_at(probabilities, local * p.heads + min(head0 + g, p.heads - 1), places.all) + t * 2;
    const bf16* line1 = row_at(probabilities, local * p.heads + min(head0 + g + 8, p.heads - 1), places.all) + t * 2;
    float total[kTileColumns / 8][4] = {};
    for (std::int32_t first_place = 0; first_place < places.all; first_place += kTileKeys) {
      if (!find_records(p, places, r, first_place, records)) {
        continue;
      }
      load_keys(p, records, column0, width, kStride, keys);
#pragma unroll
      for (int k = 0; k < kTileKeys; k += 16) {
        const std::int32_t place = first_place + k;
        const unsigned a[4] = {*reinterpret_cast<const unsigned*>(line0 + place), *reinterpret_cast<const unsigned*>(line1 + place),
                               *reinterpret_cast<const unsigned*>(line0 + place + 8),
                               *reinterpret_cast<const unsigned*>(line1 + place + 8)};
#pragma unroll
        for (int c = 0; c < kTileColumns; c += 16) {
          if (c < width) {
            // Rows k + lane % 16, columns c and c + 8.
            const uint4 b = load_transposed(keys + (k + lane % 16) * kStride + c + lane / 16 * 8);
            multiply(total[c / 8], a, b.x, b.y);
            multiply(total[c / 8 + 1], a, b.z, b.w);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t head = head0 + g + half * 8;
      if (head >= p.heads) {
        continue;
      }
      const float sum = denominators[local * p.heads + head];
#pragma unroll
      for (int c = 0; c < kTileColumns; c += 8) {
        if (c < width) {
          bf16* out = row_at(o, r * p.heads + head, d) + column0 + c + t * 2;
          out[0] = to_bf16(total[c / 8][half * 2] / sum);
          out[1] = to_bf16(total[c / 8][half * 2 + 1] / sum);
        }
      }
    }
  }
}

/// Inverse rotation at the query's position, then Q8. One block a head of a row. `o` may be p.o.
__global__ void finish_kernel(AttendParams p, bf16* o) {
  begin_in_turn();
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

/// Scratch of one call, in floats a row: scores, probabilities, denominators.
struct AttendScratch {
  std::int64_t scores, probabilities, denominators;
  [[nodiscard]] std::int64_t all() const { return scores + probabilities + denominators; }
};

AttendScratch scratch_of(const AttendParams& p) {
  const std::int64_t line = static_cast<std::int64_t>(p.heads) * places_of(p).all;
  constexpr std::int32_t kAligned = 4;
  return {line, line / 2, round_up(p.heads, kAligned)};
}

}  // namespace

std::int64_t attend_scratch_per_row(const AttendParams& p) { return is_wide(p) ? 0 : scratch_of(p).all(); }

void attend_rows(const AttendParams& p, std::int64_t first_row, std::int64_t rows, float* scratch, bf16* o, cudaStream_t stream) {
  if (is_wide(p)) {  // needs no scratch, so that all rows come at once
    attend_wide(p, stream);
    return;
  }
  const AttendScratch sizes = scratch_of(p);
  float* scores = scratch;
  auto* probabilities = reinterpret_cast<bf16*>(scores + rows * sizes.scores);
  float* denominators = scores + rows * (sizes.scores + sizes.probabilities);
  const std::size_t key_bytes = static_cast<std::size_t>(kTileKeys) * static_cast<std::size_t>(p.head_dim + 8) * sizeof(bf16);
  const auto count = static_cast<unsigned>(rows);
  start(score_kernel,
        {.grid = dim3(static_cast<unsigned>(places_of(p).all / kTileKeys), count), .block = kThreads, .shared_bytes = key_bytes}, stream, p,
        first_row, scores);
  const std::int64_t lines = rows * p.heads;
  start(softmax_kernel, {.grid = dim3(static_cast<unsigned>((lines + kWarps - 1) / kWarps)), .block = kThreads}, stream, p, scores,
        probabilities, denominators, lines);
  const auto pieces = static_cast<unsigned>((p.head_dim + kTileColumns - 1) / kTileColumns);
  start(output_kernel, {.grid = dim3(pieces, count), .block = kThreads}, stream, p, first_row, probabilities, denominators, o);
}

void attend_finish(const AttendParams& p, bf16* o, cudaStream_t stream) {
  if (!is_wide(p)) {
    start(finish_kernel,
          {.grid = dim3(static_cast<unsigned>(p.rows.num_rows * p.heads)), .block = kThreads, .shared_bytes = p.head_dim * sizeof(bf16)}, stream,
          p, o);
  }
}

}  // namespace deepinfer::cuda
