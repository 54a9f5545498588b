// Operands of products with warpgroup instructions: a thread's codes and scales of a step out of shared memory, codes to bf16 in registers, and
// the four instructions of a group of 64 values.
#pragma once

#include "backends/cuda/kernels/gemm_stages.cuh"
#include "backends/cuda/kernels/packed_products.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace deepinfer::cuda::hopper {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Where a thread finds its codes and scales among those of a step: offsets from the codes' begin.
template <WeightKind kind>
struct Places {
  std::uint32_t codes, scale[2];

  __device__ __forceinline__ explicit Places(int row) {  // within the tile
    const int t = threadIdx.x % 4;
    codes = piece_place<kind>(row, t);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row + i * 8;
      scale[i] = kCodeBytes<kind> + (kind == WeightKind::fp8 ? r / kWeightBlock * 4 + t / 2 : r * 4 + t);
    }
    asm volatile("" : "+r"(codes), "+r"(scale[0]), "+r"(scale[1]));  // not worked out anew in every step
  }
};

/// A thread's codes and scales of a step.
struct ThreadCodes {
  unsigned words[2][2][4];  // row g, row g + 8; bf16: of each half
  unsigned scale[2];
};

__device__ __forceinline__ void load_16(std::uint32_t address, unsigned (&words)[4]) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ unsigned load_byte(std::uint32_t address) {
  unsigned out;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(out) : "r"(address) : "memory");
  return out;
}

/// `weights`: where the codes of the step begin. What a unit needs; codes of all units of a step are loaded with the first.
template <WeightKind kind>
__device__ __forceinline__ void load_unit(std::uint32_t weights, const Places<kind>& places, int step, int unit, ThreadCodes& out) {
  constexpr int kEightRows = 8 * kRowBytes<kind>;
  if (kind != WeightKind::bf16 && unit > 0) {
    return;
  }
  const std::uint32_t codes = weights + places.codes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (kind != WeightKind::bf16) {
      out.scale[i] = load_byte(weights + places.scale[i] + (kind == WeightKind::fp8 ? step % 2 * 2 : 0));
    }
    load_16((unit == 0 ? codes : codes ^ 64U) + i * kEightRows, out.words[unit][i]);  // bf16: each half of the row
  }
}

/// Operands are in their registers before the instructions, not written between them, where they would wait for each other. `zero` is 0, which
/// the compiler does not know: because of the branch it moves bf16 values, which it would otherwise leave where they were loaded.
template <WeightKind kind, int kInstructions>
__device__ __forceinline__ void keep_before_products(unsigned zero, unsigned (&a)[kInstructions][4]) {
  if (kind == WeightKind::bf16 && zero != 0) {
#pragma unroll
    for (auto& operand : a) {
      operand[0] ^= zero, operand[1] ^= zero, operand[2] ^= zero, operand[3] ^= zero;
    }
  }
#pragma unroll
  for (auto& operand : a) {
    asm volatile("" : "+r"(operand[0]), "+r"(operand[1]), "+r"(operand[2]), "+r"(operand[3]));
  }
}

/// Operands of the two instructions of a unit: eight codes a lane of two rows.
template <WeightKind kind>
__device__ __forceinline__ void unpack_unit(const ThreadCodes& codes, int unit, unsigned zero, unsigned (&a)[2][4]) {
  unsigned pairs[2][4];  // row
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned* words = kind == WeightKind::bf16 ? codes.words[unit][i] : codes.words[0][i] + unit * Codes<kind>::kWordsPerUnit;
    __nv_bfloat162 scale{};
    if constexpr (kind != WeightKind::bf16) {
      scale = make_scale<Codes<kind>::kBias>(codes.scale[i]);
    }
    Codes<kind>::unpack(words, scale, pairs[i]);
  }
  if constexpr (kind != WeightKind::bf16) {
    if (has_rest<Codes<kind>::kBias>(max(codes.scale[0], codes.scale[1]))) {  // hardly ever
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scale_all(pairs[i], rest_of<Codes<kind>::kBias>(codes.scale[i]));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    a[i][0] = pairs[0][i * 2];
    a[i][1] = pairs[1][i * 2];
    a[i][2] = pairs[0][i * 2 + 1];
    a[i][3] = pairs[1][i * 2 + 1];
  }
  keep_before_products<kind>(zero, a);
}

/// Operands of the four instructions of a group.
template <WeightKind kind>
__device__ __forceinline__ void unpack_group(const ThreadCodes& codes, int group, unsigned zero, unsigned (&a)[4][4]) {
  unsigned pairs[2][2][4];  // unit, row
  __nv_bfloat162 scale[2] = {};
  if constexpr (kind != WeightKind::bf16) {
    scale[0] = make_scale<Codes<kind>::kBias>(codes.scale[0]);
    scale[1] = make_scale<Codes<kind>::kBias>(codes.scale[1]);
  }
#pragma unroll
  for (int unit = 0; unit < 2; ++unit) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned* words = kind == WeightKind::bf16 ? codes.words[unit][i] : codes.words[0][i] + (group * 2 + unit) * Codes<kind>::kWordsPerUnit;
      Codes<kind>::unpack(words, scale[i], pairs[unit][i]);
    }
  }
  if constexpr (kind != WeightKind::bf16) {
    if (has_rest<Codes<kind>::kBias>(max(codes.scale[0], codes.scale[1]))) {  // hardly ever
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const __nv_bfloat162 rest = rest_of<Codes<kind>::kBias>(codes.scale[i]);
        scale_all(pairs[0][i], rest);
        scale_all(pairs[1][i], rest);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i][0] = pairs[i / 2][0][i % 2 * 2];
    a[i][1] = pairs[i / 2][1][i % 2 * 2];
    a[i][2] = pairs[i / 2][0][i % 2 * 2 + 1];
    a[i][3] = pairs[i / 2][1][i % 2 * 2 + 1];
  }
  keep_before_products<kind>(zero, a);
}

template <int kColumns>
__device__ __forceinline__ void multiply_group(float (&acc)[kColumns / 2], const unsigned (&a)[4][4], std::uint32_t x) {
  const std::uint64_t first = matrix_of(x, kColumns * 16);
  begin_products();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    multiply<kColumns>(acc, a[i], first + i * 2 * kColumns);  // two pieces of 8 values on, in units of 16 bytes
  }
  end_products();
}

#endif  // SM90

}  // namespace deepinfer::cuda::hopper
