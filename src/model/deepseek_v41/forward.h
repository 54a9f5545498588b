// One forward pass, layer by layer: reads top to bottom like docs/spec/model.md section 12.
// Borrows weights, caches, tables and workspace from the model; holds no state between passes.
#pragma once

#include <cstdint>

#include "model/deepseek_v41/binding.h"
#include "model/deepseek_v41/caches.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/model.h"
#include "model/deepseek_v41/step_tables.h"
#include "model/deepseek_v41/workspace.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::model {

/// What a pass works on.
struct ForwardContext {
  Ops& ops;
  Stream& stream;
  // Work beside that of `stream`; they wait for and are waited for by it.
  Stream& fetches;  ///< of Engram rows, for layers to come
  Stream& mixes;    ///< mixing coefficients of a sub-layer, which the next one needs
  Stream& beside;   ///< what attention needs besides its longest chain
  const Config& config;
  const ModelWeights& weights;
  Caches& caches;
  const StepTables& tables;
  Workspace& workspace;
  const LayerHook& hook;  ///< empty: none
};

class ForwardPass {
 public:
  explicit ForwardPass(const ForwardContext& context);

  /// Runs all layers over the rows of the tables and leaves the wanted logits in workspace.logits. With drafts (Workspace::taps) the rings of
  /// the drafter get their rows too.
  void run();
  /// Runs the drafter over the blocks of the tables (section 7): leaves in workspace.logits the logits of all rows without the Markov term, and
  /// in workspace.confidence the part of the confidences that does not depend on the drafts.
  void run_drafter();

 private:
  void run_layer(std::int32_t layer);
  void embed();
  void prepare_rotations();
  void fill_rotations(std::int32_t count, const std::int32_t* position, const float* frequency, const RopeBuffer& out);
  void fetch_engram(std::int32_t place);
  void engram(std::int32_t place);
  /// Normalised input of a sub-layer: u and u_q8 of the current rows. `x` gets what it was before the norm.
  void sublayer_input(const float* pre, const bf16* norm, bf16* x = nullptr);
  /// Coefficients of the next sub-layer's input and of this one's expand().
  void mix(const MixWeights& weights, float* pre);
  void expand();
  void write_global(std::int32_t layer);
  void enter_decoder_half();
  void attention(std::int32_t layer);
  void queries(std::int32_t layer, Stream& stream);
  void window_rows(std::int32_t layer, Stream& stream);
  void store_ring(std::int32_t layer);
  void select(std::int32_t layer);
  void attend(std::int32_t layer);
  void moe(std::int32_t layer);
  void tap(std::int32_t place);
  void store_draft_context();
  void examine(std::int32_t layer);
  void head();

  [[nodiscard]] std::int32_t num_rows() const { return rows_->rows.num_rows; }
  [[nodiscard]] const BlockWeights& block(std::int32_t layer) const;
  [[nodiscard]] RopeTable rope(std::int32_t layer) const;
  void linear(Stream& stream, const Q8Rows& x, const QuantWeight& weight, std::int32_t n, std::int32_t k, bf16* y);

  ForwardContext context_;
  Ops& ops_;
  Stream& stream_;
  const Config& config_;
  Workspace& w_;
  const RowSet* rows_;  // the rows of the current layer: all of them, or the kept ones from the split layer on
};

}  // namespace deepinfer::model
