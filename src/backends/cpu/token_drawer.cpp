#include "backends/cpu/token_drawer.h"

#include <cstddef>
#include <span>

#include "backends/cpu/rows.h"
#include "sampling/row_mask.h"

namespace deepinfer::cpu {

void TokenDrawer::draw(const DrawTokensParams& params, std::int64_t row) {
  const auto vocab = static_cast<std::size_t>(params.vocab);
  if (masked_.size() != vocab) {
    sampler_.emplace(params.vocab);
    masked_.resize(vocab);
  }
  const TokenDraw& draw = params.draw[row];
  std::span<const float> logits{row_at(params.logits, params.row_index != nullptr ? params.row_index[row] : row, params.vocab), vocab};
  if (draw.mask >= 0) {
    const std::int32_t num_words = (params.vocab + 31) / 32;
    sampling::mask_row(logits, {row_at(params.masks, draw.mask, num_words), static_cast<std::size_t>(num_words)}, masked_);
    logits = masked_;
  }
  const auto token = sampler_->sample(
      logits, {.temperature = draw.temperature, .top_p = draw.top_p, .top_k = draw.top_k, .min_p = draw.min_p},
      {.seed = draw.seed, .position = draw.position});
  if (token || params.always) {
    params.token[row] = token ? token->value : 0;
  } else {
    params.token[row] = token.error() == sampling::RowFailure::not_finite ? kRowNotFinite : kNothingAllowed;
  }
}

}  // namespace deepinfer::cpu
