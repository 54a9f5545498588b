// Results of the wide products (gemm_wide.cu): warpgroups lay sums down in shared memory, a warp for each warpgroup takes them from there to
// device memory, a column's 64 rows together, while the next item is multiplied.
#pragma once

#include "backends/cuda/kernels/gemm_wide_copies.cuh"

namespace deepinfer::cuda::hopper {

/// bf16 values, or sums in single precision where a bias or a width that no vector divides is possible.
template <WeightKind kind>
constexpr bool kPassesSums = kind == WeightKind::bf16;
template <WeightKind kind>
constexpr int kResultColumns = kPassesSums<kind> ? 16 : 32;  // of a stage
template <WeightKind kind>
constexpr int kResultColumnBytes = kResultRows * (kPassesSums<kind> ? 4 : 2) + 16;
static_assert(kResultColumns<WeightKind::fp8> * kResultColumnBytes<WeightKind::fp8> <= kResultStageBytes);
static_assert(kResultColumns<WeightKind::bf16> * kResultColumnBytes<WeightKind::bf16> <= kResultStageBytes);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Two neighbouring 16 x 8 tiles of bf16 to columns of 16 rows: `to` is the first column's, for this lane's part of the four 8 x 8 tiles.
__device__ __forceinline__ void lay_down(std::uint32_t to, const unsigned (&tiles)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]),
               "r"(tiles[3])
               : "memory");
}

/// Sixteen columns of a warp's 16 rows; `c`: their sums, `column`: the first one's place.
template <WeightKind kind>
__device__ __forceinline__ void lay_sixteen(std::uint32_t column, int warp_id, const float* c) {
  const int lane = threadIdx.x % 32;
  const int row = warp_id % 4 * 16;
  constexpr int kBytes = kResultColumnBytes<kind>;
  if constexpr (kPassesSums<kind>) {
    const std::uint32_t own = column + lane % 4 * 2 * kBytes + (row + lane / 4) * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(own + (i / 4 * 8 + i % 2) * kBytes + i / 2 % 2 * 32), "f"(c[i]) : "memory");
    }
  } else {  // sums that are NaN are all of one kind, so that the conversion leaves what to_bf16() does
    const std::uint32_t own = column + (lane / 16 * 8 + lane % 8) * kBytes + row * 2 + lane / 8 % 2 * 16;
    lay_down(own, {bf16_pair(c[0], c[1]), bf16_pair(c[2], c[3]), bf16_pair(c[4], c[5]), bf16_pair(c[6], c[7])});
  }
}

/// The sums of an item, stage by stage.
template <WeightKind kind, int kColumns>
__device__ __forceinline__ void pass_results(const Ring& ring, RingPlace& place, int warp_id, const float (&sums)[kColumns / 2]) {
#pragma unroll
  for (int first = 0; first < kColumns; first += kResultColumns<kind>) {
    wait_barrier(ring.empty(place.stage), place.parity ^ 1U);
#pragma unroll
    for (int column = first; column < min(first + kResultColumns<kind>, kColumns); column += 16) {
      lay_sixteen<kind>(ring.memory + place.stage * kResultStageBytes + (column - first) * kResultColumnBytes<kind>, warp_id,
                        sums + column / 2);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(ring.full(place.stage));
    }
    place.advance(kResultStages);
  }
}

/// One stage of bf16: a lane takes 16 bytes of a column at a time.
__device__ __forceinline__ void store_values(std::uint32_t stage, bf16* y, std::int64_t stride, int columns, const Ring& ring, int index) {
  constexpr int kAtOnce = 4;
  constexpr int kTogether = 4;  // columns of an instruction
  const int lane = threadIdx.x % 32;
  y += lane / 8 * stride + lane % 8 * 8;
  std::uint32_t from = stage + lane / 8 * kResultColumnBytes<WeightKind::fp8> + lane % 8 * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned words[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      load_16(from + (half * kAtOnce + i) * kTogether * kResultColumnBytes<WeightKind::fp8>, words[i]);
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

/// One stage of sums: a lane takes two rows of a column at a time.
__device__ __forceinline__ void store_sums(const GemmParams& p, std::uint32_t stage, int row, std::int64_t column, int columns) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int i = 0; i < min(columns, kResultColumns<WeightKind::bf16>); ++i) {
    float sums[2];
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                 : "=f"(sums[0]), "=f"(sums[1])
                 : "r"(stage + i * kResultColumnBytes<WeightKind::bf16> + lane * 8)
                 : "memory");
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int n = row + lane * 2 + j;
      if (n < p.n) {
        const std::int64_t place = (column + i) * p.y_stride + n;
        const float value = sums[j] + (p.bias != nullptr ? to_float(p.bias[n]) : 0.0F);
        if (p.y_f32 != nullptr) {
          p.y_f32[place] = value;
        } else {
          p.y_bf16[place] = to_bf16(value);
        }
      }
    }
  }
}

/// All results of a warpgroup; one warp.
template <WeightKind kind>
__device__ void store_items(const WideParams& p, const WideMemory& memory, int group) {
  const Ring ring = memory.results_of(group);
  RingPlace item_place, place;
  for (ItemPart item = next_item(memory.items, item_place); item.columns > 0; item = next_item(memory.items, item_place)) {
    const int row = item.place + group * kResultRows;
    for (int first = 0; first < item.columns; first += kResultColumns<kind>) {
      wait_barrier(ring.full(place.stage), place.parity);
      const std::uint32_t stage = ring.memory + place.stage * kResultStageBytes;
      const std::int64_t column = item.first_column + first;
      const int columns = item.num_columns - first;
      if constexpr (kPassesSums<kind>) {
        store_sums(p.gemm, stage, row, column, columns);
        release(ring, place.stage);
      } else {
        store_values(stage, p.gemm.y_bf16 + column * p.gemm.y_stride + row, p.gemm.y_stride, columns, ring, place.stage);
      }
      place.advance(kResultStages);
    }
  }
}

#endif  // SM90

}  // namespace deepinfer::cuda::hopper
