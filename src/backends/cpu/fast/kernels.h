// The vectorised kernels of one instruction set as a table of functions. Each works on a range of rows (and columns or heads) on one
// thread; the value of an output never depends on the range. Not here: cutting work into ranges (fast_ops.cpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/cpu/fast/scratch.h"
#include "backends/cpu/product_unit.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

struct Range {
  std::int32_t begin = 0;
  std::int32_t end = 0;

  [[nodiscard]] constexpr std::int32_t size() const { return end - begin; }
};

inline constexpr std::int32_t kRowBlock = 256;  ///< most rows of one task of a linear: they share decoded weights
inline constexpr std::int32_t kHeadChunk = 16;  ///< heads that one attend task takes together
inline constexpr std::int32_t kKeyTile = 16;    ///< index keys that are scored together

/// Pairs of (row, expert) that share an expert, and where their intermediate values live.
struct ExpertBatch {
  const ExpertWeights* weights = nullptr;
  const ExpertWeights* next = nullptr;  ///< of the expert whose turn may come next, to be fetched; may be null
  const std::int32_t* row = nullptr;   // [pairs] row of MoeParams::x
  const float* scale = nullptr;        // [pairs] routing weight
  std::uint8_t* act_codes = nullptr;   // [pairs, intermediate] Q8 of the activations
  std::uint8_t* act_scales = nullptr;  // [pairs, intermediate / 32]
  bf16* out = nullptr;                 // [pairs, hidden]
};

/// Mixing coefficients of one sub-layer.
[[nodiscard]] constexpr std::int32_t num_mixes(const MixParams& p) { return (2 + p.streams) * p.streams; }
/// Partial sums of one row while its coefficients are made.
[[nodiscard]] constexpr std::int64_t mix_sums_per_row(const MixParams& p) { return std::int64_t{8} * (num_mixes(p) + 1); }

struct MixKernels {
  void (*mix)(const MixParams&, Range rows, Scratch&);
  /// The two halves of mix, for few rows: sums [rows, mix_sums_per_row], zero before, of a range of coefficients; then the coefficients.
  void (*sums)(const MixParams&, Range rows, Range coefficients, double* sums, Scratch&);
  void (*finish)(const MixParams&, Range rows, const double* sums, Scratch&);
};

struct StreamKernels {
  void (*collapse_norm)(const CollapseNormParams&, Range rows, Scratch&);
  void (*expand)(const ExpandParams&, Range rows, Scratch&);
  void (*mean_streams)(const MeanStreamsParams&, Range rows, Scratch&);
  void (*engram_gate)(const EngramGateParams&, Range rows, Scratch&);
};

struct RowKernels {
  void (*rms_norm)(const RmsNormParams&, Range rows, Scratch&);
  void (*quantise)(const QuantiseParams&, Range rows, Scratch&);
  void (*rotate)(const RotateParams&, Range rows, Scratch&);
  void (*window_rows)(const WindowRowsParams&, Range rows, Scratch&);
  void (*compress_pairs)(const CompressPairsParams&, Range groups, Scratch&);
  void (*store_index_keys)(const StoreIndexKeysParams&, Range rows, Scratch&);
  void (*store_compressed)(const StoreCompressedParams&, Range rows, Scratch&);
  void (*add_rows)(const AddRowsParams&, Range rows);
};

struct LinearKernels {
  void (*pack_units)(const PlaceWeightParams&, Range units);                      ///< units of sixteen rows (packed_weights.h)
  void (*place_bf16)(const PlaceBf16Params&, Range units);                        ///< the same, only for units that multiply bf16
  void (*linear_q8)(const LinearQ8Params&, Range rows, Range columns, Scratch&);  ///< columns of all groups, in [0, groups * n)
  void (*linear_bf16)(const LinearBf16Params&, Range rows, Range columns, Scratch&);
  void (*route)(const RouteParams&, Range rows, Scratch&);
};

struct MoeKernels {
  /// Activations of the pairs for a range of intermediate columns (multiples of 32).
  void (*gate_up)(const MoeParams&, const ExpertBatch&, Range pairs, Range columns, Scratch&);
  /// Expert outputs of the pairs for a range of hidden columns.
  void (*down)(const MoeParams&, const ExpertBatch&, Range pairs, Range columns, Scratch&);
  /// y[row] = bf16(sum of the outputs at places[row, 0 .. count)), in this order.
  void (*combine)(const MoeParams&, const bf16* outputs, const std::int32_t* places, Range rows);
};

struct AttentionKernels {
  void (*attend)(const AttendParams&, Range rows, Range heads, Scratch&);  ///< at most kHeadChunk heads
};

struct IndexKernels {
  void (*index_select)(const IndexSelectParams&, Range rows, Scratch&);
  /// scores[j] of one row for compressed rows j of `keys`, whose begin is a multiple of kKeyTile; room up to the next multiple.
  void (*score)(const IndexSelectParams&, std::int32_t row, Range keys, float* scores, Scratch&);
  /// Candidates and list of one row from its scores, all of them.
  void (*pick)(const IndexSelectParams&, std::int32_t row, const float* scores, Scratch&);
};

inline constexpr std::int32_t kQueryBlock = 64;  ///< queries of one attend_all task: they share decoded keys

struct VisionKernels {
  void (*rotate_halves)(const RotateHalvesParams&, Range rows);
  void (*attend_all)(const AttendAllParams&, Range rows, std::int32_t head, Scratch&);  ///< at most kQueryBlock rows
  void (*add)(const AddParams&, Range rows);
  void (*silu_product)(const SiluProductParams&, Range rows);
};

struct Kernels {
  MixKernels mix;
  StreamKernels streams;
  RowKernels rows;
  LinearKernels linear;
  MoeKernels moe;
  AttentionKernels attention;
  IndexKernels index;
  VisionKernels vision;
};

[[nodiscard]] MixKernels mix_kernels();
[[nodiscard]] StreamKernels stream_kernels();
[[nodiscard]] RowKernels row_kernels();
[[nodiscard]] LinearKernels linear_kernels(ProductUnit unit);
[[nodiscard]] MoeKernels moe_kernels(ProductUnit unit);
[[nodiscard]] AttentionKernels attention_kernels(ProductUnit unit);
[[nodiscard]] IndexKernels index_kernels();
[[nodiscard]] VisionKernels vision_kernels();

/// The instruction set the kernels of this machine are compiled for, for people: "AVX2".
[[nodiscard]] std::string_view instruction_set();

/// The best unit that the best kernels of this machine can use.
[[nodiscard]] ProductUnit best_product_unit();

/// The best kernels of this machine.
[[nodiscard]] inline Kernels best_kernels(ProductUnit unit) {
  return {mix_kernels(),     stream_kernels(),    row_kernels(),   linear_kernels(unit),
          moe_kernels(unit), attention_kernels(unit), index_kernels(), vision_kernels()};
}

}  // namespace deepinfer::cpu
