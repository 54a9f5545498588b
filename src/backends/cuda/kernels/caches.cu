// Rows that later queries read: window rows and rings, pooled pairs, index keys, compressed rows (docs/spec/model.md 5.4, 9).
#include "backends/cuda/kernels/block_sums.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

// Rows are short: blocks of few threads, of which many run side by side.
constexpr int kShortRowThreads = 128;

__global__ void window_rows_kernel(WindowRowsParams p) {
  begin_in_turn();
  extern __shared__ bf16 row[];
  __shared__ BlockSums<1> sums;
  const std::int64_t r = blockIdx.x;
  norm_row(row_at(p.x, r, p.head_dim), p.weight, p.head_dim, p.norm_eps, row, sums);
  rotate_row(row, p.head_dim, p.rope_dim, p.rope, r);
  std::uint8_t* record = row_at(p.own, r, window_record_bytes(p.head_dim));
  for (std::int32_t c = threadIdx.x; c < p.head_dim; c += kShortRowThreads) {
    store_q8(row[c], c, record, record + p.head_dim);
  }
}

/// Blocks (., chunk) copy the last rows of a chunk, 4 bytes a thread where records are whole words.
__global__ void store_ring_kernel(StoreRingParams p) {
  begin_in_turn();
  const std::int32_t chunk = blockIdx.y;
  const std::int32_t count = p.chunks.num_rows[chunk];
  const std::int32_t stored = min(min(p.stored_rows[chunk], p.ring_rows), count);
  for (std::int32_t i = count - stored + static_cast<std::int32_t>(blockIdx.x); i < count; i += static_cast<std::int32_t>(gridDim.x)) {
    const std::int64_t place = (p.chunks.first_position[chunk] + static_cast<std::int64_t>(i)) % p.ring_rows;
    const std::uint8_t* source = row_at(p.own, static_cast<std::int64_t>(p.chunks.first_row[chunk]) + i, p.record_bytes);
    std::uint8_t* target = row_at(p.ring, static_cast<std::int64_t>(p.chunks.slot[chunk]) * p.ring_rows + place, p.record_bytes);
    if (p.record_bytes % 4 == 0) {
      for (std::int32_t c = threadIdx.x; c < p.record_bytes / 4; c += blockDim.x) {
        reinterpret_cast<unsigned*>(target)[c] = reinterpret_cast<const unsigned*>(source)[c];
      }
    } else {
      for (std::int32_t c = threadIdx.x; c < p.record_bytes; c += blockDim.x) {
        target[c] = source[c];
      }
    }
  }
}

__device__ float* tail_slot(const CompressPairsParams& p, std::int64_t chunk, std::int64_t position) {
  const std::int64_t slot = p.chunks.slot[chunk];
  return p.tail + (slot * p.tail_rows + position % p.tail_rows) * 2 * p.head_dim;
}

__global__ void compress_pairs_kernel(CompressPairsParams p) {
  begin_in_turn();
  const std::int64_t row = p.group_row[blockIdx.x];
  const std::int64_t chunk = p.rows.chunk[row];
  const bool is_of_step = row > p.chunks.first_row[chunk];
  const float* stored = is_of_step ? nullptr : tail_slot(p, chunk, p.rows.position[row] - 1);
  const float* first_gate = is_of_step ? row_at(p.gate, row - 1, p.head_dim) : stored;
  const float* first_value = is_of_step ? row_at(p.value, row - 1, p.head_dim) : stored + p.head_dim;
  const float* second_gate = row_at(p.gate, row, p.head_dim);
  const float* second_value = row_at(p.value, row, p.head_dim);
  for (std::int32_t c = threadIdx.x; c < p.head_dim; c += blockDim.x) {
    const double peak = first_gate[c] < second_gate[c] ? second_gate[c] : first_gate[c];
    const double a = exp(first_gate[c] - peak);
    const double b = exp(second_gate[c] - peak);
    row_at(p.pooled, blockIdx.x, p.head_dim)[c] = round_bf16((a * first_value[c] + b * second_value[c]) / (a + b));
  }
}

/// Block (i, chunk) keeps the i-th of the last rows. Runs after the pairs were pooled: they read the old tail.
__global__ void store_tail_kernel(CompressPairsParams p) {
  begin_in_turn();
  const std::int32_t chunk = blockIdx.y;
  const std::int32_t count = p.chunks.num_rows[chunk];
  const std::int32_t kept = min(count, p.tail_rows);
  if (static_cast<std::int32_t>(blockIdx.x) >= kept) {
    return;
  }
  const std::int64_t i = count - kept + static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t row = p.chunks.first_row[chunk] + i;
  float* slot = tail_slot(p, chunk, p.chunks.first_position[chunk] + i);
  for (std::int32_t c = threadIdx.x; c < p.head_dim; c += blockDim.x) {
    slot[c] = row_at(p.gate, row, p.head_dim)[c];
    slot[p.head_dim + c] = row_at(p.value, row, p.head_dim)[c];
  }
}

__global__ void store_index_keys_kernel(StoreIndexKeysParams p) {
  begin_in_turn();
  extern __shared__ bf16 key[];
  __shared__ BlockSums<1> sums;
  const std::int64_t r = blockIdx.x;
  if (p.row_place[r] < 0) {
    return;
  }
  norm_row(row_at(p.x, r, p.index_dim), p.weight, p.index_dim, p.norm_eps, key, sums);
  rotate_row(key, p.index_dim, p.rope_dim, p.rope, r);
  const std::int32_t code_bytes = p.index_dim / 2;
  const std::int32_t scale_bytes = p.index_dim / kQ4IndexGroup;
  const std::int64_t block = p.row_place[r] / p.rows_per_block;
  const std::int64_t place = p.row_place[r] % p.rows_per_block;
  std::uint8_t* codes = p.keys + block * p.rows_per_block * index_key_bytes(p.index_dim);
  std::uint8_t* scales = codes + static_cast<std::int64_t>(p.rows_per_block) * code_bytes;
  for (std::int32_t c = threadIdx.x; c < p.index_dim; c += kShortRowThreads) {
    store_q4_index(key[c], c, codes + place * code_bytes, scales + place * scale_bytes);
  }
}

__global__ void store_compressed_kernel(StoreCompressedParams p) {
  begin_in_turn();
  extern __shared__ bf16 row[];
  const std::int64_t r = blockIdx.x;
  if (p.row_place[r] < 0) {
    return;
  }
  for (std::int32_t c = threadIdx.x; c < p.head_dim; c += kBlockThreads) {
    row[c] = row_at(p.x, r, p.head_dim)[c];
  }
  __syncthreads();
  rotate_row(row, p.head_dim, p.rope_dim, p.rope, r);
  std::uint8_t* record = row_at(p.compressed, p.row_place[r], compressed_record_bytes(p.head_dim));
  for (std::int32_t c = threadIdx.x; c < p.head_dim; c += kBlockThreads) {
    store_q4_kv(row[c], c, record, record + p.head_dim / 2);
  }
}

}  // namespace

void window_rows(const WindowRowsParams& p, cudaStream_t stream) {
  start(window_rows_kernel, {.grid = dim3(p.num_rows), .block = kShortRowThreads, .shared_bytes = p.head_dim * sizeof(bf16)}, stream, p);
}

void store_ring(const StoreRingParams& p, cudaStream_t stream) {
  // Decode stores a row a chunk; the few long chunks of prefill have the GPU for themselves.
  const int blocks = p.chunks.num_chunks <= 4 ? p.ring_rows : 4;
  start(store_ring_kernel, {.grid = dim3(blocks, p.chunks.num_chunks), .block = 128}, stream, p);
}

void compress_pairs(const CompressPairsParams& p, cudaStream_t stream) {
  if (p.num_groups > 0) {
    start(compress_pairs_kernel, {.grid = dim3(p.num_groups), .block = kBlockThreads}, stream, p);
  }
  if (p.chunks.num_chunks > 0 && p.tail_rows > 0) {
    start(store_tail_kernel, {.grid = dim3(p.tail_rows, p.chunks.num_chunks), .block = kBlockThreads}, stream, p);
  }
}

void store_index_keys(const StoreIndexKeysParams& p, cudaStream_t stream) {
  start(store_index_keys_kernel, {.grid = dim3(p.num_rows), .block = kShortRowThreads, .shared_bytes = p.index_dim * sizeof(bf16)}, stream, p);
}

void store_compressed(const StoreCompressedParams& p, cudaStream_t stream) {
  start(store_compressed_kernel, {.grid = dim3(p.num_rows), .block = kBlockThreads, .shared_bytes = p.head_dim * sizeof(bf16)}, stream, p);
}

}  // namespace deepinfer::cuda
