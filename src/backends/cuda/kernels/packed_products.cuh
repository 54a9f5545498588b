// Products of a warpgroup with packed activations (SM90): a in registers, b in shared memory as pack_q8() leaves it.
#pragma once

#include <cstdint>

namespace deepinfer::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// What the instruction is told of b in shared memory: core matrices of 8 columns x 8 values (16 bytes a column), `k_stride` bytes apart
/// along k and 128 bytes apart along the columns.
__device__ __forceinline__ std::uint64_t matrix_of(std::uint32_t address, unsigned k_stride) {
  return static_cast<std::uint64_t>(address >> 4 & 0x3FFFU) | static_cast<std::uint64_t>(k_stride >> 4) << 16 |
         static_cast<std::uint64_t>(128U >> 4) << 32;
}

/// c += a b with bf16 factors and fp32 sums: a 64 x 16 in registers (each warp 16 rows as in multiply()), b 16 x N in shared memory.
/// c[4 j + i]: value i of the 16 x 8 tile j, as in multiply().
template <int N>
__device__ void multiply(float (&c)[N / 2], const unsigned (&a)[4], std::uint64_t b);

// The text of the instructions for N columns: N / 2 sums, of which the macros name eight each, then four registers of a and b.
#define DEEPINFER_SUMS_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define DEEPINFER_SUMS_16 DEEPINFER_SUMS_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define DEEPINFER_SUMS_24 DEEPINFER_SUMS_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define DEEPINFER_SUMS_32 DEEPINFER_SUMS_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define DEEPINFER_SUMS_40 DEEPINFER_SUMS_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define DEEPINFER_SUMS_48 DEEPINFER_SUMS_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define DEEPINFER_SUMS_56 DEEPINFER_SUMS_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define DEEPINFER_SUMS_64 DEEPINFER_SUMS_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define DEEPINFER_SUMS_72 DEEPINFER_SUMS_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define DEEPINFER_SUMS_80 DEEPINFER_SUMS_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define DEEPINFER_SUMS_88 DEEPINFER_SUMS_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define DEEPINFER_SUMS_96 DEEPINFER_SUMS_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define DEEPINFER_SUMS_104 DEEPINFER_SUMS_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define DEEPINFER_SUMS_112 DEEPINFER_SUMS_104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define DEEPINFER_SUMS_120 DEEPINFER_SUMS_112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define DEEPINFER_SUMS_128 DEEPINFER_SUMS_120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define DEEPINFER_FOUR(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define DEEPINFER_IN_OUT_8 DEEPINFER_FOUR(0), DEEPINFER_FOUR(4)
#define DEEPINFER_IN_OUT_16 DEEPINFER_IN_OUT_8, DEEPINFER_FOUR(8), DEEPINFER_FOUR(12)
#define DEEPINFER_IN_OUT_24 DEEPINFER_IN_OUT_16, DEEPINFER_FOUR(16), DEEPINFER_FOUR(20)
#define DEEPINFER_IN_OUT_32 DEEPINFER_IN_OUT_24, DEEPINFER_FOUR(24), DEEPINFER_FOUR(28)
#define DEEPINFER_IN_OUT_40 DEEPINFER_IN_OUT_32, DEEPINFER_FOUR(32), DEEPINFER_FOUR(36)
#define DEEPINFER_IN_OUT_48 DEEPINFER_IN_OUT_40, DEEPINFER_FOUR(40), DEEPINFER_FOUR(44)
#define DEEPINFER_IN_OUT_56 DEEPINFER_IN_OUT_48, DEEPINFER_FOUR(48), DEEPINFER_FOUR(52)
#define DEEPINFER_IN_OUT_64 DEEPINFER_IN_OUT_56, DEEPINFER_FOUR(56), DEEPINFER_FOUR(60)
#define DEEPINFER_IN_OUT_72 DEEPINFER_IN_OUT_64, DEEPINFER_FOUR(64), DEEPINFER_FOUR(68)
#define DEEPINFER_IN_OUT_80 DEEPINFER_IN_OUT_72, DEEPINFER_FOUR(72), DEEPINFER_FOUR(76)
#define DEEPINFER_IN_OUT_88 DEEPINFER_IN_OUT_80, DEEPINFER_FOUR(80), DEEPINFER_FOUR(84)
#define DEEPINFER_IN_OUT_96 DEEPINFER_IN_OUT_88, DEEPINFER_FOUR(88), DEEPINFER_FOUR(92)
#define DEEPINFER_IN_OUT_104 DEEPINFER_IN_OUT_96, DEEPINFER_FOUR(96), DEEPINFER_FOUR(100)
#define DEEPINFER_IN_OUT_112 DEEPINFER_IN_OUT_104, DEEPINFER_FOUR(104), DEEPINFER_FOUR(108)
#define DEEPINFER_IN_OUT_120 DEEPINFER_IN_OUT_112, DEEPINFER_FOUR(112), DEEPINFER_FOUR(116)
#define DEEPINFER_IN_OUT_128 DEEPINFER_IN_OUT_120, DEEPINFER_FOUR(120), DEEPINFER_FOUR(124)
#define DEEPINFER_MULTIPLY(N, sum_names, in_out, a0, a1, a2, a3, b0)                                                                      \
  template <>                                                                                                                             \
  __device__ __forceinline__ void multiply<N>(float(&c)[N / 2], const unsigned(&a)[4], std::uint64_t b) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" sum_names "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b0 \
                 ", 1, 1, 1, 0;"                                                                                                          \
                 : in_out                                                                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                                   \
  }

DEEPINFER_MULTIPLY(8, "%0,%1,%2,%3", DEEPINFER_FOUR(0), 4, 5, 6, 7, 8)
DEEPINFER_MULTIPLY(16, DEEPINFER_SUMS_8, DEEPINFER_IN_OUT_8, 8, 9, 10, 11, 12)
DEEPINFER_MULTIPLY(32, DEEPINFER_SUMS_16, DEEPINFER_IN_OUT_16, 16, 17, 18, 19, 20)
DEEPINFER_MULTIPLY(48, DEEPINFER_SUMS_24, DEEPINFER_IN_OUT_24, 24, 25, 26, 27, 28)
DEEPINFER_MULTIPLY(64, DEEPINFER_SUMS_32, DEEPINFER_IN_OUT_32, 32, 33, 34, 35, 36)
DEEPINFER_MULTIPLY(80, DEEPINFER_SUMS_40, DEEPINFER_IN_OUT_40, 40, 41, 42, 43, 44)
DEEPINFER_MULTIPLY(96, DEEPINFER_SUMS_48, DEEPINFER_IN_OUT_48, 48, 49, 50, 51, 52)
DEEPINFER_MULTIPLY(112, DEEPINFER_SUMS_56, DEEPINFER_IN_OUT_56, 56, 57, 58, 59, 60)
DEEPINFER_MULTIPLY(128, DEEPINFER_SUMS_64, DEEPINFER_IN_OUT_64, 64, 65, 66, 67, 68)
DEEPINFER_MULTIPLY(144, DEEPINFER_SUMS_72, DEEPINFER_IN_OUT_72, 72, 73, 74, 75, 76)
DEEPINFER_MULTIPLY(160, DEEPINFER_SUMS_80, DEEPINFER_IN_OUT_80, 80, 81, 82, 83, 84)
DEEPINFER_MULTIPLY(176, DEEPINFER_SUMS_88, DEEPINFER_IN_OUT_88, 88, 89, 90, 91, 92)
DEEPINFER_MULTIPLY(192, DEEPINFER_SUMS_96, DEEPINFER_IN_OUT_96, 96, 97, 98, 99, 100)
DEEPINFER_MULTIPLY(208, DEEPINFER_SUMS_104, DEEPINFER_IN_OUT_104, 104, 105, 106, 107, 108)
DEEPINFER_MULTIPLY(224, DEEPINFER_SUMS_112, DEEPINFER_IN_OUT_112, 112, 113, 114, 115, 116)
DEEPINFER_MULTIPLY(240, DEEPINFER_SUMS_120, DEEPINFER_IN_OUT_120, 120, 121, 122, 123, 124)
DEEPINFER_MULTIPLY(256, DEEPINFER_SUMS_128, DEEPINFER_IN_OUT_128, 128, 129, 130, 131, 132)

#undef DEEPINFER_SUMS_8
#undef DEEPINFER_IN_OUT_8
#undef DEEPINFER_SUMS_16
#undef DEEPINFER_IN_OUT_16
#undef DEEPINFER_SUMS_24
#undef DEEPINFER_IN_OUT_24
#undef DEEPINFER_SUMS_32
#undef DEEPINFER_IN_OUT_32
#undef DEEPINFER_SUMS_40
#undef DEEPINFER_IN_OUT_40
#undef DEEPINFER_SUMS_48
#undef DEEPINFER_IN_OUT_48
#undef DEEPINFER_SUMS_56
#undef DEEPINFER_IN_OUT_56
#undef DEEPINFER_SUMS_64
#undef DEEPINFER_IN_OUT_64
#undef DEEPINFER_SUMS_72
#undef DEEPINFER_IN_OUT_72
#undef DEEPINFER_SUMS_80
#undef DEEPINFER_IN_OUT_80
#undef DEEPINFER_SUMS_88
#undef DEEPINFER_IN_OUT_88
#undef DEEPINFER_SUMS_96
#undef DEEPINFER_IN_OUT_96
#undef DEEPINFER_SUMS_104
#undef DEEPINFER_IN_OUT_104
#undef DEEPINFER_SUMS_112
#undef DEEPINFER_IN_OUT_112
#undef DEEPINFER_SUMS_120
#undef DEEPINFER_IN_OUT_120
#undef DEEPINFER_SUMS_128
#undef DEEPINFER_IN_OUT_128
#undef DEEPINFER_FOUR
#undef DEEPINFER_MULTIPLY

#endif

}  // namespace deepinfer::cuda
