// Results of the wide products (gemm_wide.cu): warpgroups lay sums down in shared memory, a warp for each warpgroup takes them from there
// to device memory, a column's 64 rows together, while the next item is multiplied.
#pragma once

#include "backends/cuda/kernels/gemm_wide_copies.cuh"

namespace deepinfer::cuda::hopper {

inline constexpr int kResultColumns = 32;                        // of a stage
inline constexpr int kResultColumnBytes = kResultRows * 2 + 16;  // a gap, so that neighbours meet other banks
static_assert(kResultColumns * kResultColumnBytes == kResultStageBytes);
// Weights of bf16 have warps that copy only; and results in single precision, a bias, a width that nothing divides: each warp stores its
// own.
inline constexpr int kOwnColumns = 16;
inline constexpr int kOwnColumnBytes = 16 * 4 + 16;
static_assert(4 * kOwnColumns * kOwnColumnBytes <= kResultStages * kResultStageBytes);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Two neighbouring 16 x 8 tiles of bf16 to columns of 16 rows: `to` is the first column's, for this lane's part of the four 8 x 8 tiles.
__device__ __forceinline__ void lay_down(std::uint32_t to, const unsigned (&tiles)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]),
               "r"(tiles[3])
               : "memory");
}

/// The sums of an item as bf16, stage by stage. Sums that are NaN are all of one kind, so that the conversion leaves what to_bf16() does.
template <int kColumns>
__device__ __forceinline__ void pass_results(const Ring& ring, RingPlace& place, int warp_id, const float (&sums)[kColumns / 2]) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t own = ring.memory + (lane / 16 * 8 + lane % 8) * kResultColumnBytes + warp_id % 4 * 32 + lane / 8 % 2 * 16;
#pragma unroll
  for (int first = 0; first < kColumns; first += kResultColumns) {
    wait_barrier(ring.empty(place.stage), place.parity ^ 1U);
#pragma unroll
    for (int column = first; column < min(first + kResultColumns, kColumns); column += 16) {
      const float* c = sums + column / 2;
      lay_down(own + place.stage * kResultStageBytes + (column - first) * kResultColumnBytes,
               {bf16_pair(c[0], c[1]), bf16_pair(c[2], c[3]), bf16_pair(c[4], c[5]), bf16_pair(c[6], c[7])});
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(ring.full(place.stage));
    }
    place.advance(kResultStages);
  }
}

/// The sums of an item straight to device memory, sixteen columns of a warp's 16 rows at a time; `row`: the warp's first.
template <int kColumns>
__device__ __forceinline__ void store_own(const GemmParams& p, const ItemPart& item, std::uint32_t staged, int row,
                                          const float (&sums)[kColumns / 2]) {
  const int lane = threadIdx.x % 32;
  const bool in_vectors = p.y_f32 != nullptr && p.bias == nullptr && p.n % kRows == 0 && p.y_stride % 4 == 0;
  const std::uint32_t own = staged + lane % 4 * 2 * kOwnColumnBytes + lane / 4 * 4;
#pragma unroll
  for (int first = 0; first < kColumns; first += kOwnColumns) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(own + (i / 4 * 8 + i % 2) * kOwnColumnBytes + i / 2 % 2 * 32), "f"(sums[first / 2 + i])
                   : "memory");
    }
    __syncwarp();
#pragma unroll 1
    for (int column = lane / 4; column < kOwnColumns; column += 8) {
      unsigned words[4];
      load_16(staged + column * kOwnColumnBytes + lane % 4 * 16, words);
      const std::int64_t place = (item.first_column + first + column) * p.y_stride;
      const int n = row + lane % 4 * 4;
      if (first + column < item.num_columns && in_vectors) {
        *reinterpret_cast<uint4*>(p.y_f32 + place + n) = make_uint4(words[0], words[1], words[2], words[3]);
      } else if (first + column < item.num_columns) {
        for (int i = 0; i < 4 && n + i < p.n; ++i) {
          const float value = __uint_as_float(words[i]) + (p.bias != nullptr ? to_float(p.bias[n + i]) : 0.0F);
          if (p.y_f32 != nullptr) {
            p.y_f32[place + n + i] = value;
          } else {
            p.y_bf16[place + n + i] = to_bf16(value);
          }
        }
      }
    }
  }
}

/// One stage of bf16: a lane takes 16 bytes of a column at a time.
__device__ __forceinline__ void store_values(std::uint32_t stage, bf16* y, std::int64_t stride, int columns, const Ring& ring, int index) {
  constexpr int kAtOnce = 4;
  constexpr int kTogether = 4;  // columns of an instruction
  const int lane = threadIdx.x % 32;
  y += lane / 8 * stride + lane % 8 * 8;
  std::uint32_t from = stage + lane / 8 * kResultColumnBytes + lane % 8 * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned words[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      load_16(from + (half * kAtOnce + i) * kTogether * kResultColumnBytes, words[i]);
    }
    if (half == 1) {
      release(ring, index);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = (half * kAtOnce + i) * kTogether;
      if (column + lane / 8 < columns) {
        *reinterpret_cast<uint4*>(y + column * stride) = make_uint4(words[i][0], words[i][1], words[i][2], words[i][3]);
      }
    }
  }
}

/// All results of a warpgroup; one warp.
__device__ __forceinline__ void store_items(const GemmParams& p, const WideMemory& memory, int group) {
  const Ring ring = memory.results_of(group);
  RingPlace item_place, place;
  for (ItemPart item = next_item(memory.items, item_place); item.columns > 0; item = next_item(memory.items, item_place)) {
    bf16* y = p.y_bf16 + item.first_column * p.y_stride + item.place + group * kResultRows;
    for (int first = 0; first < item.columns; first += kResultColumns) {
      wait_barrier(ring.full(place.stage), place.parity);
      store_values(ring.memory + place.stage * kResultStageBytes, y, p.y_stride, item.num_columns - first, ring, place.stage);
      y += kResultColumns * p.y_stride;
      place.advance(kResultStages);
    }
  }
}

#endif  // SM90

}  // namespace deepinfer::cuda::hopper
