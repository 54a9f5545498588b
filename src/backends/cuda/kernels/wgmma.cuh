// Products of a warpgroup (128 threads) over bf16 tiles in shared memory: wgmma where the GPU has it (SM90), mma.sync elsewhere.
// Tiles are rows of 64 values (128 bytes); the 16-byte piece i of row r lies at piece i ^ r % 8. A tile starts at a multiple of 1,024
// bytes. Sums stay where mma.sync m16n8k16 leaves them: c[4 j + i] of lane l of warp w is row 16 w + l / 4 + i / 2 * 8, column 8 j + l % 4
// * 2 + i % 2.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/mma.cuh"

namespace deepinfer::cuda {

inline constexpr std::int32_t kTileRowBytes = 128;
inline constexpr std::int32_t kPieceBytes = 16;

/// Byte of piece `piece` of row `row` of a tile.
__host__ __device__ constexpr std::int32_t tile_offset(std::int32_t row, std::int32_t piece) {
  return row * kTileRowBytes + (piece ^ row % 8) * kPieceBytes;
}

/// Makes what this thread wrote to shared memory visible to products that are issued behind the next barrier.
__device__ __forceinline__ void publish_tiles() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ unsigned shared_address(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Before the first product of a batch: orders it behind register accesses.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most kLeft batches run.
template <int kLeft>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// Behind the last wait: keeps uses of the sums behind it.
template <int kCount>
__device__ __forceinline__ void take_sums(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    asm volatile("" : "+f"(c[i])::"memory");
  }
}

/// Eight rows of a tile take 1,024 bytes; `block_bytes`: from one 64-column block of b to the next, where it lies as it is.
__device__ __forceinline__ std::uint64_t tile_descriptor(unsigned address, unsigned block_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{8 * kTileRowBytes / 16} << 32;
  return kSwizzle128 | kEightRows | static_cast<std::uint64_t>(block_bytes / 16) << 16 | (address & 0x3FFFFU) >> 4;
}

/// c += a b: a 64 x 16 in registers (a warp has 16 rows, as for mma.sync m16n8k16), b 16 x 64, the transposed rows of a tile.
__device__ __forceinline__ void issue_product(float (&c)[32], const unsigned (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]),
        "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]),
        "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// c += a b: a 64 x 16, rows of a tile; b 16 x 64, as it lies.
__device__ __forceinline__ void issue_product(float (&c)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]),
        "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]),
        "+f"(c[31])
      : "l"(a), "l"(b));
}

/// c += a b: a 64 x 16, rows of a tile; b 16 x 128, as it lies.
__device__ __forceinline__ void issue_product(float (&c)[64], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]),
        "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]),
        "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
        "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]),
        "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]),
        "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "l"(a), "l"(b));
}

/// c += a b: a 64 x 16, rows of a tile; b 16 x 64, the transposed rows of a tile.
__device__ __forceinline__ void issue_product_by_rows(float (&c)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]),
        "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),
        "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
        "+f"(c[30]), "+f"(c[31])
      : "l"(a), "l"(b));
}

/// c += a b with a in registers and b[k][n] = row n, column 16 step + k of the tile at `b`: 64 rows.
__device__ __forceinline__ void multiply_by_rows(float (&c)[32], const unsigned (&a)[4], unsigned b, std::int32_t step) {
  issue_product(c, a, tile_descriptor(b + static_cast<unsigned>(step) * 2 * kPieceBytes, kPieceBytes));
}

/// c += a b with a[m][k] = row m, column 16 step + k of the tile at `a`, b[k][n] = row k of the tile blocks at `b`, column n: 64 columns a
/// block, blocks `block_bytes` apart.
template <int kCount>
__device__ __forceinline__ void multiply_tiles(float (&c)[kCount], unsigned a, std::int32_t step, unsigned b, unsigned block_bytes) {
  issue_product(c, tile_descriptor(a + static_cast<unsigned>(step) * 2 * kPieceBytes, kPieceBytes), tile_descriptor(b, block_bytes));
}

#else

__device__ __forceinline__ void begin_products() {}
__device__ __forceinline__ void end_products() {}
template <int kLeft>
__device__ __forceinline__ void wait_products() {}
template <int kCount>
__device__ __forceinline__ void take_sums(float (&)[kCount]) {}

/// Four 8 x 8 tiles, as they lie: lanes 0-7, 8-15, 16-23, 24-31 give the rows.
__device__ __forceinline__ uint4 load_matrices(unsigned row) {
  uint4 out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "r"(row));
  return out;
}
/// The same, each transposed.
__device__ __forceinline__ uint4 load_transposed_matrices(unsigned row) {
  uint4 out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "r"(row));
  return out;
}

__device__ __forceinline__ void multiply_piece(float* c, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  multiply(*reinterpret_cast<float(*)[4]>(c), a, b0, b1);
}

__device__ __forceinline__ void multiply_by_rows(float (&c)[32], const unsigned (&a)[4], unsigned b, std::int32_t step) {
  const std::int32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < 4; ++n) {  // of 16 columns
    const uint4 x = load_matrices(b + tile_offset(n * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
    multiply_piece(c + n * 8, a, x.x, x.y);
    multiply_piece(c + n * 8 + 4, a, x.z, x.w);
  }
}

template <int kCount>
__device__ __forceinline__ void multiply_tiles(float (&c)[kCount], unsigned a, std::int32_t step, unsigned b, unsigned block_bytes) {
  const std::int32_t lane = threadIdx.x % 32;
  const uint4 rows = load_matrices(a + tile_offset(threadIdx.x % 128 / 32 * 16 + lane % 16, step * 2 + lane / 16));
  const unsigned left[4] = {rows.x, rows.y, rows.z, rows.w};
#pragma unroll
  for (int n = 0; n < kCount / 8; ++n) {
    const uint4 x = load_transposed_matrices(b + n / 4 * block_bytes + tile_offset(lane % 16, n % 4 * 2 + lane / 16));
    multiply_piece(c + n * 8, left, x.x, x.y);
    multiply_piece(c + n * 8 + 4, left, x.z, x.w);
  }
}

#endif

}  // namespace deepinfer::cuda
