// Entry points of the kernels: each issues its work on `stream` and returns. Scratch memory comes from the caller.
// Parses as C++20 and C++23: device and host code include it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/ops.h"

namespace deepinfer::cuda {

// collapse.cu
void collapse_norm(const CollapseNormParams&, cudaStream_t);

// rows.cu
void embed(const EmbedParams&, cudaStream_t);
void expand(const ExpandParams&, cudaStream_t);
void mean_streams(const MeanStreamsParams&, cudaStream_t);
void rms_norm(const RmsNormParams&, cudaStream_t);
void quantise(const QuantiseParams&, cudaStream_t);
void rope_table(const RopeTableParams&, cudaStream_t);
void rotate(const RotateParams&, cudaStream_t);
void add_rows(const AddRowsParams&, cudaStream_t);

// mix.cu
void mix(const MixParams&, cudaStream_t);

// engram.cu
void engram_gather(const EngramGatherParams&, cudaStream_t);
void engram_gate(const EngramGateParams&, cudaStream_t);

// caches.cu
void window_rows(const WindowRowsParams&, cudaStream_t);
void store_ring(const StoreRingParams&, cudaStream_t);
void compress_pairs(const CompressPairsParams&, cudaStream_t);
void store_index_keys(const StoreIndexKeysParams&, cudaStream_t);
void store_compressed(const StoreCompressedParams&, cudaStream_t);

// index.cu
std::int64_t index_scores_per_row(const IndexSelectParams&);  ///< floats of scratch
void index_select(const IndexSelectParams&, std::int64_t first_row, std::int64_t rows, float* scores, cudaStream_t);

// attention.cu
std::int64_t attend_scratch_per_row(const AttendParams&);  ///< floats of scratch
/// Attention before the inverse rotation, for some rows: o [num_rows, heads, head_dim].
void attend_rows(const AttendParams&, std::int64_t first_row, std::int64_t rows, float* scratch, bf16* o, cudaStream_t);
/// Inverse rotation and Q8 of all rows; o may be p.o.
void attend_finish(const AttendParams&, bf16* o, cudaStream_t);

// linear.cu
std::size_t linear_scratch(const LinearQ8Params&);  ///< values of scratch
std::size_t linear_scratch(const LinearBf16Params&);
void linear_q8(const LinearQ8Params&, bf16* scratch, cudaStream_t);
void linear_bf16(const LinearBf16Params&, bf16* scratch, cudaStream_t);

// moe.cu
void select_experts(const RouteParams&, const float* logits, cudaStream_t);
std::size_t moe_scratch_bytes(const MoeParams&);
void moe_shared(const MoeParams&, void* scratch, cudaStream_t);  ///< these two in any order or side by side
void moe_routed(const MoeParams&, void* scratch, cudaStream_t);
void moe_sum(const MoeParams&, void* scratch, cudaStream_t);  ///< after both

// peak.cu
double probe_matrix_flops();  ///< cuda_device.h

// draw.cu
void draw_tokens(const DrawTokensParams&, cudaStream_t);

// vision.cu
void rotate_halves(const RotateHalvesParams&, cudaStream_t);
void attend_all(const AttendAllParams&, cudaStream_t);  ///< head_dim at most 256
void add(const AddParams&, cudaStream_t);
void silu_product(const SiluProductParams&, cudaStream_t);
void gelu(const GeluParams&, cudaStream_t);
void gather_cells(const GatherCellsParams&, cudaStream_t);

}  // namespace deepinfer::cuda
