// The DSpark drafter (docs/spec/model.md section 7): what the backbone leaves for it, and its pass over blocks of drafts.
// Not here: the sequential part, one draft after the other (model.cpp), and what is done with drafts (engine).
#include "model/deepseek_v41/forward.h"

namespace deepinfer::model {

/// Input of a tapped layer: the mean of the streams, taps side by side.
void ForwardPass::tap(std::int32_t place) {
  ops_.mean_streams(stream_, {.num_rows = num_rows(),
                              .streams = config_.hc_mult,
                              .hidden = config_.hidden_size,
                              .h = w_.h,
                              .y = w_.taps + static_cast<std::ptrdiff_t>(place) * config_.hidden_size,
                              .y_stride = config_.num_taps() * config_.hidden_size});
}

/// Window rows of this step's positions in the rings of the drafter's blocks, all from one projection of the taps.
void ForwardPass::store_draft_context() {
  if (w_.taps == nullptr) {
    return;
  }
  const DrafterWeights& drafter = context_.weights.drafter;
  const std::int32_t width = config_.num_taps() * config_.hidden_size;
  ops_.quantise(stream_, {.num_rows = num_rows(), .width = width, .x = w_.taps, .q8 = w_.taps_q8});
  linear(stream_, w_.taps_q8, drafter.main_proj, config_.hidden_size, width, w_.y);
  ops_.rms_norm(stream_, {.num_rows = num_rows(),
                          .width = config_.hidden_size,
                          .x = w_.y,
                          .x_stride = 0,
                          .weight = drafter.main_norm,
                          .norm_eps = config_.rms_norm_eps,
                          .y = w_.u,
                          .q8 = w_.u_q8});
  for (std::int32_t layer = config_.num_hidden_layers; layer < config_.num_all_layers(); ++layer) {
    window_rows(layer, stream_);
    store_ring(layer);
  }
}

void ForwardPass::run_drafter() {
  embed();
  prepare_rotations();
  for (std::int32_t layer = config_.num_hidden_layers; layer < config_.num_all_layers(); ++layer) {
    run_layer(layer);
  }
  const DrafterWeights& drafter = context_.weights.drafter;
  sublayer_input(w_.pre, drafter.norm, w_.y);
  LinearBf16Params project{.num_rows = num_rows(),
                           .n = config_.vocab_size,
                           .k = config_.hidden_size,
                           .x = w_.u,
                           .row_index = context_.tables.logit_rows(),
                           .weight = context_.weights.head,
                           .y_f32 = w_.logits,
                           .y_bf16 = nullptr};
  ops_.linear_bf16(stream_, project);
  project.n = 1;
  project.x = w_.y;
  project.weight = {drafter.confidence};
  project.y_f32 = w_.confidence;
  ops_.linear_bf16(stream_, project);
}

}  // namespace deepinfer::model
