// The closed list of operations the model calls: plain parameter structs and the abstract Ops.
// Every pointer is device memory. Formulas: docs/spec/model.md (section numbers below). Parses as C++20: device code includes it.
// Rules for every implementation: an output row is a function of its own row and the weights only (docs/spec/kernels.md section 6);
// sums run in an order fixed by the shape, never by the number of rows or threads; num_rows == 0 does nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/device.h"
#include "ops/draw_params.h"
#include "ops/vision_params.h"
#include "tensor/formats.h"

namespace deepinfer {

// --- shared shapes ----------------------------------------------------------------------------------------------

/// Q8 activations: E4M3 codes with one UE8M0 scale per 32 consecutive values.
struct Q8Rows {
  std::uint8_t* codes = nullptr;   // [rows, k]
  std::uint8_t* scales = nullptr;  // [rows, k / 32]
};

enum class WeightFormat : std::uint8_t {
  fp8,  ///< E4M3 [n, k], one UE8M0 scale per 32 x 32 block: [ceil(n/32), ceil(k/32)]
  fp4,  ///< E2M1 pairs [n, k/2], even column in the low nibble, one UE8M0 scale per 32 columns: [n, k/32]
};

/// How the same bytes lie: rows as in the checkpoint, or in the order in which a device reads them (Ops::place_weight).
enum class WeightLayout : std::uint8_t { rows, units };

struct QuantWeight {
  WeightFormat format = WeightFormat::fp8;
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  WeightLayout layout = WeightLayout::rows;
};

/// A bf16 weight of products. Rows: [n, k]; units: what Ops::place_bf16 of this device has made of them.
struct Bf16Weight {
  const bf16* values = nullptr;
  WeightLayout layout = WeightLayout::rows;
};

[[nodiscard]] constexpr std::size_t weight_code_bytes(WeightFormat format, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(format == WeightFormat::fp8 ? n * k : n * (k / 2));
}
[[nodiscard]] constexpr std::size_t weight_scale_bytes(WeightFormat format, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>((format == WeightFormat::fp8 ? (n + 31) / 32 : n) * ((k + 31) / 32));
}

/// A weight on its way from host memory, in rows, to the device.
struct PlaceWeightParams {
  std::int32_t n = 0, k = 0;
  QuantWeight from;                // host memory, may go after Stream::synchronize
  std::uint8_t* codes = nullptr;   // out, as many bytes as from.codes
  std::uint8_t* scales = nullptr;  // out, as many bytes as from.scales
};

/// Room that a device may take for a bf16 weight [n, k]: whole tiles of 16 rows by 32 values, and a byte for each 16 rows.
[[nodiscard]] constexpr std::size_t bf16_weight_bytes(std::int64_t n, std::int64_t k) {
  const std::int64_t units = (n + 15) / 16;
  return static_cast<std::size_t>(units * (2 * 16 * ((k + 31) / 32 * 32) + 1));
}

/// A bf16 weight on its way from host memory, in rows, to the device.
struct PlaceBf16Params {
  std::int32_t n = 0, k = 0;
  const bf16* from = nullptr;  // [n, k] host memory, may go after Stream::synchronize
  bf16* to = nullptr;          // out, bf16_weight_bytes of room
};

/// The rows of one step. Rows of one chunk are consecutive, at consecutive positions.
struct RowTable {
  std::int32_t num_rows = 0;
  const std::int32_t* position = nullptr;  // [rows] absolute, 0-based
  const std::int32_t* chunk = nullptr;     // [rows] index into ChunkTable
};

/// A chunk: the rows of one request in this step, with its cache places.
struct ChunkTable {
  std::int32_t num_chunks = 0;
  const std::int32_t* first_row = nullptr;       // [chunks]
  const std::int32_t* num_rows = nullptr;        // [chunks]
  const std::int32_t* first_position = nullptr;  // [chunks]
  const std::int32_t* slot = nullptr;            // [chunks] bounded state of the request
  const std::int32_t* block_table = nullptr;     // [chunks, max_blocks] blocks of 128 positions, ascending
  std::int32_t max_blocks = 0;
};

/// cos and sin of position * frequency, one line per row.
struct RopeTable {
  const float* cos = nullptr;  // [rows, rope_dim / 2]
  const float* sin = nullptr;  // [rows, rope_dim / 2]
};

inline constexpr std::int32_t kBlockPositions = 128;  ///< tokens per cache block (section 9.1)

/// Bytes of one window row: codes, then scales. [head_dim | head_dim / 32]
[[nodiscard]] constexpr std::int32_t window_record_bytes(std::int32_t head_dim) { return head_dim + head_dim / kQ8Group; }
/// Bytes of one compressed row: packed codes, then E4M3 scales. [head_dim / 2 | head_dim / 16]
[[nodiscard]] constexpr std::int32_t compressed_record_bytes(std::int32_t head_dim) { return head_dim / 2 + head_dim / kQ4KvGroup; }
/// Bytes of one index key; a block stores all codes first, then all scales.
[[nodiscard]] constexpr std::int32_t index_key_bytes(std::int32_t index_dim) { return index_dim / 2 + index_dim / kQ4IndexGroup; }

// --- residual streams (5.1, 5.3) --------------------------------------------------------------------------------

struct EmbedParams {
  std::int32_t num_rows = 0, streams = 0, hidden = 0;
  const std::int32_t* token = nullptr;     // [rows]
  const bf16* table = nullptr;             // [vocab, hidden]
  const std::uint8_t* is_image = nullptr;  // [rows] or null: none; these rows are taken from image_rows
  const bf16* image_rows = nullptr;        // [rows, hidden], read where is_image
  bf16* h = nullptr;                       // out [rows, streams, hidden], equal streams
};

/// Coefficients of one sub-layer: one RMS statistic over all streams, then sigmoid, sigmoid, Sinkhorn.
struct MixParams {
  std::int32_t num_rows = 0, streams = 0, hidden = 0;
  const bf16* h = nullptr;       // [rows, streams, hidden]
  const float* fn = nullptr;     // [(2 + streams) * streams, streams * hidden]
  const float* base = nullptr;   // [(2 + streams) * streams]
  const float* scale = nullptr;  // [3]
  std::int32_t sinkhorn_iterations = 0;
  float mix_eps = 0, norm_eps = 0;
  float* pre = nullptr;   // out [rows, streams]
  float* post = nullptr;  // out [rows, streams]
  float* comb = nullptr;  // out [rows, streams, streams]; expand sums over the first of the two
};

/// x = bf16(sum_i pre[i] h[i]); y = rms(x; weight); q8 = Q8(y).
struct CollapseNormParams {
  std::int32_t num_rows = 0, streams = 0, hidden = 0;
  const bf16* h = nullptr;       // [rows, streams, hidden]
  const float* pre = nullptr;    // [rows, streams]
  const bf16* weight = nullptr;  // [hidden]
  float norm_eps = 0;
  bf16* x = nullptr;  // out [rows, hidden], may be null
  bf16* y = nullptr;  // out [rows, hidden]
  Q8Rows q8;          // out, codes may be null
};

/// h[k] <- bf16(post[k] y + sum_j comb[j][k] h[j]).
struct ExpandParams {
  std::int32_t num_rows = 0, streams = 0, hidden = 0;
  const bf16* y = nullptr;      // [rows, hidden]
  const float* post = nullptr;  // [rows, streams]
  const float* comb = nullptr;  // [rows, streams, streams]
  bf16* h = nullptr;            // in and out [rows, streams, hidden]
};

/// Drafter tap: bf16(mean of the streams), written with a row stride so that taps land side by side.
struct MeanStreamsParams {
  std::int32_t num_rows = 0, streams = 0, hidden = 0;
  const bf16* h = nullptr;  // [rows, streams, hidden]
  bf16* y = nullptr;        // out [rows, ...], `y_stride` elements from row to row
  std::int32_t y_stride = 0;
};

// --- norms, rotations, linears (4.3-4.6) ------------------------------------------------------------------------

/// y = rms(x; weight), q8 = Q8(y); either output may be null.
struct RmsNormParams {
  std::int32_t num_rows = 0, width = 0;
  const bf16* x = nullptr;  // [rows, width], `x_stride` elements from row to row (0: width)
  std::int32_t x_stride = 0;
  const bf16* weight = nullptr;  // [width]
  float norm_eps = 0;
  bf16* y = nullptr;  // out [rows, width]
  Q8Rows q8;          // out
};

struct QuantiseParams {
  std::int32_t num_rows = 0, width = 0;
  const bf16* x = nullptr;  // [rows, width]
  Q8Rows q8;                // out
};

/// cos/sin of fl32(position) * frequency, each the fp32 rounding of the exact value at the fp32 angle.
struct RopeTableParams {
  std::int32_t num_rows = 0, half_dim = 0;
  const std::int32_t* position = nullptr;  // [rows]
  const float* frequency = nullptr;        // [half_dim]
  float* cos = nullptr;                    // out [rows, half_dim]
  float* sin = nullptr;                    // out [rows, half_dim]
};

/// Rotates the last rope_dim values of every head in place, interleaved pairs.
struct RotateParams {
  std::int32_t num_rows = 0, heads = 0, head_dim = 0, rope_dim = 0;
  RopeTable rope;
  bf16* x = nullptr;  // in and out [rows, heads, head_dim]
};

/// y = QL(w, x) per group g: y[r, g, n] from x[r, g, :] and rows g*n .. of w. groups = 1 is the ordinary linear.
struct LinearQ8Params {
  std::int32_t num_rows = 0, n = 0, k = 0, groups = 1;
  Q8Rows x;            // [rows, groups * k]
  QuantWeight weight;  // [groups * n, k]
  bf16* y = nullptr;   // out [rows, groups * n]
};

/// y = w x + bias with bf16 operands, one rounding; exactly one of y_f32 and y_bf16 is set.
struct LinearBf16Params {
  std::int32_t num_rows = 0, n = 0, k = 0;
  const bf16* x = nullptr;                  // [.., k]
  const std::int32_t* row_index = nullptr;  // [rows] row of x for each output row; null: 0, 1, 2, ...
  Bf16Weight weight;                        // [n, k]
  float* y_f32 = nullptr;                   // out [rows, n]
  bf16* y_bf16 = nullptr;                   // out [rows, n]
  const bf16* bias = nullptr;               // [n] or null
};

/// y += x, fp32.
struct AddRowsParams {
  std::int32_t num_rows = 0, width = 0;
  const float* x = nullptr;  // [rows, width]
  float* y = nullptr;        // in and out [rows, width]
};

// --- attention (5.4, 9) -----------------------------------------------------------------------------------------

/// Window rows of this step: rms, rotation, Q8, packed as records.
struct WindowRowsParams {
  std::int32_t num_rows = 0, head_dim = 0, rope_dim = 0;
  const bf16* x = nullptr;       // [rows, head_dim] output of wkv
  const bf16* weight = nullptr;  // [head_dim] kv_norm
  float norm_eps = 0;
  RopeTable rope;
  std::uint8_t* own = nullptr;  // out [rows, window_record_bytes]
};

/// Copies the last stored_rows[c] (at most ring_rows) window rows of each chunk to slot position mod ring_rows.
struct StoreRingParams {
  ChunkTable chunks;
  std::int32_t record_bytes = 0, ring_rows = 0;
  const std::int32_t* stored_rows = nullptr;  // [chunks] 0: the chunk leaves no trace
  const std::uint8_t* own = nullptr;          // [rows, record_bytes]
  std::uint8_t* ring = nullptr;               // [slots, ring_rows, record_bytes]
};

/// Ratio 2: pools token pairs that this step completes, then stores the last tail_rows gates and values of each chunk.
/// The first token of a pair is the row before, or the tail when the pair straddles the start of the chunk.
struct CompressPairsParams {
  RowTable rows;
  ChunkTable chunks;
  std::int32_t head_dim = 0, tail_rows = 0;
  std::int32_t num_groups = 0;
  const std::int32_t* group_row = nullptr;  // [groups] row of the second token, ascending
  const float* value = nullptr;             // [rows, head_dim]
  const float* gate = nullptr;              // [rows, head_dim]
  float* tail = nullptr;                    // in and out [slots, tail_rows, 2, head_dim]: gate, value; slot position mod tail_rows
  bf16* pooled = nullptr;                   // out [groups, head_dim]
};

/// Index keys: rms, rotation, Q4i, stored at row_place = block * rows_per_block + row in block (-1: not stored).
struct StoreIndexKeysParams {
  std::int32_t num_rows = 0, index_dim = 0, rope_dim = 0, rows_per_block = 0;
  const bf16* x = nullptr;       // [rows, index_dim] output of wk
  const bf16* weight = nullptr;  // [index_dim] k_norm
  float norm_eps = 0;
  RopeTable rope;                           // of the compressed rows
  const std::int32_t* row_place = nullptr;  // [rows]
  std::uint8_t* keys = nullptr;             // [blocks, rows_per_block * index_key_bytes]: codes of the block, then scales
};

/// Compressed rows: rotation, Q4k, stored as records.
struct StoreCompressedParams {
  std::int32_t num_rows = 0, head_dim = 0, rope_dim = 0;
  const bf16* x = nullptr;  // [rows, head_dim] latents, normalised, not rotated
  RopeTable rope;
  const std::int32_t* row_place = nullptr;  // [rows]
  std::uint8_t* compressed = nullptr;       // [blocks * rows_per_block, compressed_record_bytes]
};

enum class CandidateMode : std::uint8_t {
  none,
  produce,   ///< write the candidate blocks; the list itself is unrestricted
  restrict,  ///< only rows inside the candidate blocks compete
};

/// Scores of visible compressed rows and the list of the best top_k, ascending, padded with -1 (5.4 "Index list").
struct IndexSelectParams {
  RowTable rows;
  ChunkTable chunks;
  std::int32_t heads = 0, index_dim = 0, rope_dim = 0, ratio = 0, rows_per_block = 0, top_k = 0;
  const bf16* q = nullptr;            // [rows, heads, index_dim] output of indexer.wq_b, not rotated
  const bf16* head_weight = nullptr;  // [rows, heads] output of weights_proj, not scaled
  RopeTable rope;
  const std::uint8_t* keys = nullptr;  // as in StoreIndexKeysParams
  std::int32_t* list = nullptr;        // out [rows, top_k]
  CandidateMode candidate_mode = CandidateMode::none;
  std::int32_t candidate_block_size = 0, candidate_top_blocks = 0;
  std::int32_t* candidates = nullptr;  // out or in [rows, candidate_top_blocks], ascending, padded with -1
};

/// One softmax over window rows and listed rows with a sink, inverse rotation at the query's position, Q8.
struct AttendParams {
  RowTable rows;
  ChunkTable chunks;
  std::int32_t heads = 0, head_dim = 0, rope_dim = 0, ring_rows = 0;
  const bf16* q = nullptr;                    // [rows, heads, head_dim], rotated
  const std::uint8_t* own = nullptr;          // [rows, window_record_bytes] positions >= first_position of the chunk
  const std::uint8_t* ring = nullptr;         // [slots, ring_rows, window_record_bytes] positions before it
  const std::int32_t* window_low = nullptr;   // [rows] first visible position; above window_high: no window row
  const std::int32_t* window_high = nullptr;  // [rows] last visible position (the row's own; drafter: end of the block)
  std::int32_t max_window = 0;                // no row sees more window rows than this
  const std::int32_t* list = nullptr;         // [rows, top_k] or null (ratio 0)
  std::int32_t top_k = 0, ratio = 0, rows_per_block = 0;
  const std::uint8_t* compressed = nullptr;  // [blocks * rows_per_block, compressed_record_bytes]
  const float* sink = nullptr;               // [heads] only in the denominator
  RopeTable rope;
  bf16* o = nullptr;  // out [rows, heads * head_dim] after the inverse rotation, may be null
  Q8Rows q8;          // out Q8(o)
};

// --- mixture of experts (5.5) -----------------------------------------------------------------------------------

struct RouteParams {
  std::int32_t num_rows = 0, hidden = 0, num_experts = 0, top_k = 0;
  const bf16* u = nullptr;                 // [rows, hidden]
  Bf16Weight weight;                       // [num_experts, hidden]
  const float* bias = nullptr;             // [num_experts] selects, never scales
  const float* bias_image = nullptr;       // [num_experts], used where is_image
  const std::uint8_t* is_image = nullptr;  // [rows] or null: none
  float routed_scaling = 0;
  std::int32_t* expert = nullptr;  // out [rows, top_k], ascending ids
  float* expert_weight = nullptr;  // out [rows, top_k]; NaN when a score is not finite
};

struct ExpertWeights {
  QuantWeight w1, w3;  // [intermediate, hidden]
  QuantWeight w2;      // [hidden, intermediate]
};

/// y = bf16(sum over the row's experts, ascending, then the shared expert with weight 1).
struct MoeParams {
  std::int32_t num_rows = 0, hidden = 0, intermediate = 0, num_experts = 0, top_k = 0;
  Q8Rows x;                                // [rows, hidden]
  const std::int32_t* expert = nullptr;    // [rows, top_k] ascending
  const float* expert_weight = nullptr;    // [rows, top_k]
  const ExpertWeights* experts = nullptr;  // [num_experts], device memory as everything else
  ExpertWeights shared;
  float swiglu_limit = 0;  // 0: no clamp
  bf16* y = nullptr;       // out [rows, hidden]
};

// --- Engram (5.6.4) ---------------------------------------------------------------------------------------------

/// Collects table rows as Q8 activations; -1 gives zeros.
struct EngramGatherParams {
  std::int32_t num_rows = 0, columns = 0, row_dim = 0;
  const std::int32_t* row_id = nullptr;  // [rows, columns]
  const std::uint8_t* codes = nullptr;   // [table_rows, row_dim]
  const std::uint8_t* scales = nullptr;  // [table_rows, row_dim / 32]
  Q8Rows e;                              // out [rows, columns * row_dim]
};

struct EngramGateParams {
  std::int32_t num_rows = 0, streams = 0, hidden = 0;
  const bf16* kv = nullptr;                // [rows, streams + 1, hidden]: keys, then the value
  const bf16* q_weight = nullptr;          // [streams, hidden]
  const bf16* k_weight = nullptr;          // [streams, hidden]
  const std::uint8_t* is_image = nullptr;  // [rows] or null; image rows stay unchanged
  float norm_eps = 0;
  bf16* h = nullptr;  // in and out [rows, streams, hidden]
};

// --- the interface ----------------------------------------------------------------------------------------------

/// One implementation per back end, plus the plain CPU reference that reads like the formulas.
class Ops {
 public:
  virtual ~Ops() = default;

  /// Fills codes and scales with a weight, in the layout that is returned.
  virtual WeightLayout place_weight(Stream& stream, const PlaceWeightParams& p) {
    stream.copy(p.codes, p.from.codes, weight_code_bytes(p.from.format, p.n, p.k));
    stream.copy(p.scales, p.from.scales, weight_scale_bytes(p.from.format, p.n, p.k));
    return WeightLayout::rows;
  }

  /// The same for a bf16 weight.
  virtual Bf16Weight place_bf16(Stream& stream, const PlaceBf16Params& p) {
    stream.copy(p.to, p.from, sizeof(bf16) * static_cast<std::size_t>(p.n) * static_cast<std::size_t>(p.k));
    return {.values = p.to, .layout = WeightLayout::rows};
  }

  virtual void embed(Stream&, const EmbedParams&) = 0;
  virtual void mix(Stream&, const MixParams&) = 0;
  virtual void collapse_norm(Stream&, const CollapseNormParams&) = 0;
  virtual void expand(Stream&, const ExpandParams&) = 0;
  virtual void mean_streams(Stream&, const MeanStreamsParams&) = 0;

  virtual void rms_norm(Stream&, const RmsNormParams&) = 0;
  virtual void quantise(Stream&, const QuantiseParams&) = 0;
  virtual void rope_table(Stream&, const RopeTableParams&) = 0;
  virtual void rotate(Stream&, const RotateParams&) = 0;
  virtual void linear_q8(Stream&, const LinearQ8Params&) = 0;
  virtual void linear_bf16(Stream&, const LinearBf16Params&) = 0;
  virtual void add_rows(Stream&, const AddRowsParams&) = 0;

  virtual void window_rows(Stream&, const WindowRowsParams&) = 0;
  virtual void store_ring(Stream&, const StoreRingParams&) = 0;
  virtual void compress_pairs(Stream&, const CompressPairsParams&) = 0;
  virtual void store_index_keys(Stream&, const StoreIndexKeysParams&) = 0;
  virtual void store_compressed(Stream&, const StoreCompressedParams&) = 0;
  virtual void index_select(Stream&, const IndexSelectParams&) = 0;
  virtual void attend(Stream&, const AttendParams&) = 0;

  virtual void route(Stream&, const RouteParams&) = 0;
  virtual void moe(Stream&, const MoeParams&) = 0;

  virtual void engram_gather(Stream&, const EngramGatherParams&) = 0;
  virtual void engram_gate(Stream&, const EngramGateParams&) = 0;

  virtual void draw_tokens(Stream&, const DrawTokensParams&) = 0;

  virtual void rotate_halves(Stream&, const RotateHalvesParams&) = 0;
  virtual void attend_all(Stream&, const AttendAllParams&) = 0;
  virtual void add(Stream&, const AddParams&) = 0;
  virtual void silu_product(Stream&, const SiluProductParams&) = 0;
  virtual void gelu(Stream&, const GeluParams&) = 0;
  virtual void gather_cells(Stream&, const GatherCellsParams&) = 0;
};

}  // namespace deepinfer
