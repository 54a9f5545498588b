// Plain kernels: every operation as its formula reads, sequential, in double precision between rounding points.
// The oracle of the contract table; agrees with the Python reference. Not here: speed.
#pragma once

#include "ops/ops.h"

namespace deepinfer::cpu {

class ReferenceOps final : public Ops {
 public:
  // streams.cpp
  void embed(Stream& stream, const EmbedParams& params) override;
  void mix(Stream& stream, const MixParams& params) override;
  void collapse_norm(Stream& stream, const CollapseNormParams& params) override;
  void expand(Stream& stream, const ExpandParams& params) override;
  void mean_streams(Stream& stream, const MeanStreamsParams& params) override;

  // linear.cpp
  void rms_norm(Stream& stream, const RmsNormParams& params) override;
  void quantise(Stream& stream, const QuantiseParams& params) override;
  void rope_table(Stream& stream, const RopeTableParams& params) override;
  void rotate(Stream& stream, const RotateParams& params) override;
  void linear_q8(Stream& stream, const LinearQ8Params& params) override;
  void linear_bf16(Stream& stream, const LinearBf16Params& params) override;
  void draw_tokens(Stream& stream, const DrawTokensParams& params) override;
  void add_rows(Stream& stream, const AddRowsParams& params) override;

  // compress.cpp
  void window_rows(Stream& stream, const WindowRowsParams& params) override;
  void store_ring(Stream& stream, const StoreRingParams& params) override;
  void compress_pairs(Stream& stream, const CompressPairsParams& params) override;
  void store_index_keys(Stream& stream, const StoreIndexKeysParams& params) override;
  void store_compressed(Stream& stream, const StoreCompressedParams& params) override;

  // index_select.cpp, attention.cpp
  void index_select(Stream& stream, const IndexSelectParams& params) override;
  void attend(Stream& stream, const AttendParams& params) override;

  // moe.cpp
  void route(Stream& stream, const RouteParams& params) override;
  void moe(Stream& stream, const MoeParams& params) override;

  // engram.cpp
  void engram_gather(Stream& stream, const EngramGatherParams& params) override;
  void engram_gate(Stream& stream, const EngramGateParams& params) override;

  // vision.cpp
  void rotate_halves(Stream& stream, const RotateHalvesParams& params) override;
  void attend_all(Stream& stream, const AttendAllParams& params) override;
  void add(Stream& stream, const AddParams& params) override;
  void silu_product(Stream& stream, const SiluProductParams& params) override;
  void gelu(Stream& stream, const GeluParams& params) override;
  void gather_cells(Stream& stream, const GatherCellsParams& params) override;
};

}  // namespace deepinfer::cpu
