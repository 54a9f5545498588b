// Products with mma.sync, for any GPU and any shape: few columns with a slice a warp, many with tiles in shared memory.
#include <cuda_pipeline.h>

#include "backends/cuda/kernels/gemm_codes.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kTileRows = 16;  // weight rows of one instruction

// --- few columns: one 16-row tile a block, a slice a warp; bound by the weights ----------------------------------

/// What a lane reads for one step: codes and scales of its two rows, activations of its columns as they come (Q8 or bf16).
template <WeightKind kind, int kBytes, int kColumnTiles>
struct LaneStep {
  static constexpr int kCodes = codes_of(kind, kBytes);
  static constexpr int kXWords = kind == WeightKind::bf16 ? kCodes / 2 : kCodes / 4;
  unsigned words[2][4];
  unsigned x[kColumnTiles][kXWords];
  std::uint8_t scales[2];
  std::uint8_t x_scale[kColumnTiles];
};

/// Blocks that share a multiprocessor, by how many blocks there are: alone, a block keeps more of its codes on their way.
enum class Crowd : std::uint8_t { alone, usual, large };

template <WeightKind kind, int kColumnTiles, Crowd crowd>
constexpr int kNarrowBlocks = crowd == Crowd::alone ? 1 : kind != WeightKind::fp8 || kColumnTiles > 1 ? 2 : crowd == Crowd::usual ? 3 : 4;
/// Steps that are on their way, as registers allow.
template <WeightKind kind, int kColumnTiles, Crowd crowd>
constexpr int kAhead = kColumnTiles > 1        ? 2
                       : crowd == Crowd::alone ? (kind == WeightKind::bf16 ? 16 : kind == WeightKind::fp8 ? 10 : 6)
                       : crowd == Crowd::usual ? (kind == WeightKind::bf16 ? 8 : 3)
                                               : (kind == WeightKind::bf16 ? 8 : 2);

template <WeightKind kind, int kBytes, int kColumnTiles, Crowd crowd>
__global__ __launch_bounds__(kSlices * 32, kNarrowBlocks<kind, kColumnTiles, crowd>) void narrow_gemm_kernel(GemmParams p) {
  using Step = LaneStep<kind, kBytes, kColumnTiles>;
  constexpr int kStep = 4 * Step::kCodes;
  constexpr int kUnits = Step::kCodes / 8;
  constexpr int kDepth = kAhead<kind, kColumnTiles, crowd>;
  __shared__ float parts[kSlices][kColumnTiles][4][32];
  if (p.experts != nullptr && !p.tiles_are_ready) {
    wait_for_inputs();
  }
  GemmWork work;
  if (!find_work(p, blockIdx.y, blockIdx.z, kColumnTiles * 8, work)) {
    wait_for_inputs();
    return;
  }
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int32_t tile_row = blockIdx.x * kTileRows;
  // Rows beyond the last read the last; their results are not stored.
  const std::int64_t rows[2] = {work.weight_row + min(tile_row + g, p.n - 1), work.weight_row + min(tile_row + g + 8, p.n - 1)};
  const std::uint8_t* w[2] = {work.codes + first_codes<kind, kBytes>(p, rows[0]) + t * kBytes,
                              work.codes + first_codes<kind, kBytes>(p, rows[1]) + t * kBytes};
  const int bytes_of_step = step_bytes<kind, kBytes>(p);
  const int steps = p.k / kStep;
  const int first = slice_begin(warp, steps);
  const int end = slice_begin(warp + 1, steps);
  const auto load_weights = [&](int step, Step& out) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_words<kBytes>(w[i] + static_cast<std::int64_t>(step) * bytes_of_step, out.words[i]);
      if constexpr (kind != WeightKind::bf16) {
        out.scales[i] = scale_code<kind>(p, work.scales, rows[i], step * kStep + t * Step::kCodes);
      }
    }
  };
  std::int64_t x_start[kColumnTiles];  // of the lane's values in the rows of activations
  const auto load_x = [&](int step, Step& out) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const std::int64_t start = x_start[j] + step * kStep;
      const auto* source = reinterpret_cast<const unsigned*>(kind == WeightKind::bf16 ? reinterpret_cast<const std::uint8_t*>(p.x + start)
                                                                                       : p.x_q8.codes + start);
      if constexpr (Step::kXWords >= 4) {
#pragma unroll
        for (int i = 0; i < Step::kXWords; i += 4) {
          const uint4 v = *reinterpret_cast<const uint4*>(source + i);
          out.x[j][i] = v.x, out.x[j][i + 1] = v.y, out.x[j][i + 2] = v.z, out.x[j][i + 3] = v.w;
        }
      } else {
        const uint2 v = *reinterpret_cast<const uint2*>(source);
        out.x[j][0] = v.x, out.x[j][1] = v.y;
      }
      if constexpr (kind != WeightKind::bf16) {
        out.x_scale[j] = p.x_q8.scales[start / kQ8Group];
      }
    }
  };
  Step ring[kDepth];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (first + i < end) {
      load_weights(first + i, ring[i]);
    }
  }
  begin_in_turn();  // weights were not written by a kernel
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const std::int32_t column = work.first_column + min(j * 8 + g, work.num_columns - 1);
    x_start[j] = (p.x_row != nullptr ? p.x_row[column] : column) * p.x_stride + blockIdx.z * p.x_group + t * Step::kCodes;
  }
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (first + i < end) {
      load_x(first + i, ring[i]);
    }
  }
  float acc[kColumnTiles][4] = {};
  for (int base = first; base < end; base += kDepth) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const int step = base + i;
      if (step < end) {
        const Step now = ring[i];
        if (step + kDepth < end) {
          load_weights(step + kDepth, ring[i]);
          load_x(step + kDepth, ring[i]);
        }
        __nv_bfloat162 scale[2] = {};
        if constexpr (kind != WeightKind::bf16) {
          scale[0] = make_scale<Codes<kind>::kBias>(now.scales[0]);
          scale[1] = make_scale<Codes<kind>::kBias>(now.scales[1]);
        }
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          unsigned pairs[2][4];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            Codes<kind>::unpack(now.words[r] + u * Codes<kind>::kWordsPerUnit, scale[r], pairs[r]);
            if constexpr (kind != WeightKind::bf16) {
              add_rest<Codes<kind>::kBias>(pairs[r], now.scales[r]);
            }
          }
          const unsigned first_half[4] = {pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]};
          const unsigned second_half[4] = {pairs[0][2], pairs[1][2], pairs[0][3], pairs[1][3]};
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            unsigned b[4];
            unpack_activations<kind>(now.x[j] + u * (Step::kXWords / kUnits), now.x_scale[j], b);
            multiply(acc[j], first_half, b[0], b[1]);
            multiply(acc[j], second_half, b[2], b[3]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      parts[warp][j][i][lane] = acc[j][i];
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < kColumnTiles * 4 * 32; e += kSlices * 32) {
    const int from = e % 32;
    const int i = e / 32 % 4;
    const int j = e / 128;
    float sum = parts[0][j][i][from];
#pragma unroll
    for (int slice = 1; slice < kSlices; ++slice) {
      sum += parts[slice][j][i][from];
    }
    store_result(p, work, j * 8 + from % 4 * 2 + i % 2, tile_row + from / 4 + i / 2 * 8, sum);
  }
}

// --- many columns: tiles of 128 weight rows in shared memory, copied ahead ---------------------------------------

constexpr int kWideRows = 128;
constexpr int kStages = 3;

/// Bytes of shared memory of one stage: codes, then activations with rows a half line apart (no bank meets itself).
template <WeightKind kind, int kBytes, int kColumns>
struct WideStage {
  static constexpr int kCodesPerLane = codes_of(kind, kBytes);
  static constexpr int kStep = 4 * kCodesPerLane;
  static constexpr int kWeightStride = 4 * kBytes;
  static constexpr int kXStride = kStep * 2 + 64;
  static constexpr int kWeightBytes = kWideRows * kWeightStride;
  static constexpr int kBytesTotal = kWeightBytes + kColumns * kXStride;
};

template <WeightKind kind, int kBytes, int kColumns>
__global__ __launch_bounds__(256) void wide_gemm_kernel(GemmParams p) {
  using Stage = WideStage<kind, kBytes, kColumns>;
  constexpr int kStep = Stage::kStep;
  constexpr int kUnits = Stage::kCodesPerLane / 8;
  constexpr int kWarpColumnTiles = kColumns / 16;  // two warps side by side
  extern __shared__ __align__(128) std::uint8_t memory[];
  GemmWork work;
  begin_in_turn();
  if (!find_work(p, blockIdx.y, blockIdx.z, kColumns, work)) {
    return;
  }
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int warp_row = warp / 2 * 32;
  const int warp_column = warp % 2 * (kColumns / 2);
  const std::int32_t tile_row = blockIdx.x * kWideRows;
  const int steps = p.k / kStep;

  const auto fetch = [&](int step) {
    if (step < steps) {
      std::uint8_t* stage = memory + step % kStages * Stage::kBytesTotal;
      constexpr int kPiece = kBytes;  // 16, 8 or 4 bytes a copy
      for (int i = threadIdx.x; i < kWideRows * 4; i += 256) {
        const std::int64_t row = work.weight_row + min(tile_row + i / 4, p.n - 1);
        const std::int64_t place = first_codes<kind, kBytes>(p, row) + static_cast<std::int64_t>(step) * step_bytes<kind, kBytes>(p);
        __pipeline_memcpy_async(stage + i * kPiece, work.codes + place + i % 4 * kPiece, kPiece);
      }
      constexpr int kPieces = kStep * 2 / 16;
      for (int i = threadIdx.x; i < kColumns * kPieces; i += 256) {
        const std::int32_t column = work.first_column + min(i / kPieces, work.num_columns - 1);
        const bf16* x = p.x + (p.x_row != nullptr ? p.x_row[column] : column) * p.x_stride + blockIdx.z * p.x_group;
        __pipeline_memcpy_async(stage + Stage::kWeightBytes + i / kPieces * Stage::kXStride + i % kPieces * 16,
                                x + static_cast<std::int64_t>(step) * kStep + i % kPieces * 8, 16);
      }
    }
    __pipeline_commit();
  };

  float total[2][kWarpColumnTiles][4] = {};
  float acc[2][kWarpColumnTiles][4] = {};
  for (int step = 0; step < kStages - 1; ++step) {
    fetch(step);
  }
  int slice = 0;  // the last one has steps, whatever their number
  for (int step = 0; step < steps; ++step) {
    while (step >= slice_begin(slice + 1, steps)) {  // the slice is complete
#pragma unroll
      for (int i = 0; i < 2 * kWarpColumnTiles * 4; ++i) {
        float& sum = (&total[0][0][0])[i];
        float& part = (&acc[0][0][0])[i];
        sum = slice == 0 ? part : sum + part;
        part = 0;
      }
      ++slice;
    }
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    fetch(step + kStages - 1);
    const std::uint8_t* stage = memory + step % kStages * Stage::kBytesTotal;
    unsigned words[4][4];  // rows g, g + 8, g + 16, g + 24 of the warp
    unsigned scale_codes[4] = {};
    __nv_bfloat162 scale[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_words<kBytes>(stage + (warp_row + i * 8 + g) * Stage::kWeightStride + t * kBytes, words[i]);
      if constexpr (kind != WeightKind::bf16) {
        const std::int64_t row = work.weight_row + min(tile_row + warp_row + i * 8 + g, p.n - 1);
        scale_codes[i] = scale_code<kind>(p, work.scales, row, step * kStep + t * Stage::kCodesPerLane);
        scale[i] = make_scale<Codes<kind>::kBias>(scale_codes[i]);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      unsigned pairs[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Codes<kind>::unpack(words[i] + u * Codes<kind>::kWordsPerUnit, scale[i], pairs[i]);
        if constexpr (kind != WeightKind::bf16) {
          add_rest<Codes<kind>::kBias>(pairs[i], scale_codes[i]);
        }
      }
#pragma unroll
      for (int j = 0; j < kWarpColumnTiles; ++j) {
        const uint4 b =
            *reinterpret_cast<const uint4*>(stage + Stage::kWeightBytes + (warp_column + j * 8 + g) * Stage::kXStride + u * 64 + t * 16);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const unsigned first_half[4] = {pairs[2 * m][0], pairs[2 * m + 1][0], pairs[2 * m][1], pairs[2 * m + 1][1]};
          const unsigned second_half[4] = {pairs[2 * m][2], pairs[2 * m + 1][2], pairs[2 * m][3], pairs[2 * m + 1][3]};
          multiply(acc[m][j], first_half, b.x, b.y);
          multiply(acc[m][j], second_half, b.z, b.w);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int j = 0; j < kWarpColumnTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_result(p, work, warp_column + j * 8 + t * 2 + i % 2, tile_row + warp_row + m * 16 + g + i / 2 * 8,
                     total[m][j][i] + acc[m][j][i]);
      }
    }
  }
}

// --- choice -------------------------------------------------------------------------------------------------------

template <WeightKind kind, int kBytes>
void launch_vector(const GemmParams& p, int tile_columns, int num_tiles, int groups, cudaStream_t stream) {
  const dim3 grid((p.n + kTileRows - 1) / kTileRows, num_tiles, groups);
  const auto narrow = [&](auto kernel) { start(kernel, {.grid = grid, .block = kSlices * 32}, stream, p); };
  const auto wide = [&](auto kernel, std::size_t shared_bytes) {
    start(kernel, {.grid = dim3((p.n + kWideRows - 1) / kWideRows, num_tiles, groups), .block = 256, .shared_bytes = shared_bytes}, stream, p);
  };
  if (tile_columns == 8) {
    constexpr unsigned kMultiprocessors = 132;
    const unsigned blocks = grid.x * grid.y * grid.z;
    narrow(blocks <= kMultiprocessors       ? narrow_gemm_kernel<kind, kBytes, 1, Crowd::alone>
           : blocks <= 3 * kMultiprocessors ? narrow_gemm_kernel<kind, kBytes, 1, Crowd::usual>
                                            : narrow_gemm_kernel<kind, kBytes, 1, Crowd::large>);
  } else if (tile_columns == 16) {
    narrow(narrow_gemm_kernel<kind, kBytes, 2, Crowd::usual>);
  } else if (tile_columns == 32) {
    wide(wide_gemm_kernel<kind, kBytes, 32>, kStages * WideStage<kind, kBytes, 32>::kBytesTotal);
  } else {
    wide(wide_gemm_kernel<kind, kBytes, 128>, kStages * WideStage<kind, kBytes, 128>::kBytesTotal);
  }
}

}  // namespace

void launch_mma_gemm(WeightKind kind, const GemmParams& p, const ColumnTiles& tiles, int groups, cudaStream_t stream) {
  const int bytes = vector_bytes(kind, p.k);
  if (kind == WeightKind::bf16) {
    launch_vector<WeightKind::bf16, 16>(p, tiles.columns, tiles.count, groups, stream);
  } else if (kind == WeightKind::fp8) {
    (bytes == 16 ? launch_vector<WeightKind::fp8, 16> : launch_vector<WeightKind::fp8, 8>)(p, tiles.columns, tiles.count, groups, stream);
  } else if (bytes == 16) {
    launch_vector<WeightKind::fp4, 16>(p, tiles.columns, tiles.count, groups, stream);
  } else {
    (bytes == 8 ? launch_vector<WeightKind::fp4, 8> : launch_vector<WeightKind::fp4, 4>)(p, tiles.columns, tiles.count, groups, stream);
  }
}

}  // namespace deepinfer::cuda
