// A row of logits under a token mask, before anything else looks at it (structured_output.md, "Masks").
// Not here: where the mask comes from (grammar).
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer::sampling {

/// out[c] = logits[c] where bit c % 32 of word c / 32 is set, −infinity elsewhere. When every allowed logit is −infinity, the allowed
/// columns become equal instead (0). Without a set bit the row allows nothing.
/// logits, out: [vocab] fp32, `out` not overlapping; mask: ⌈vocab / 32⌉ words, bits beyond the vocabulary ignored.
void mask_row(std::span<const float> logits, std::span<const std::uint32_t> mask, std::span<float> out);

}  // namespace deepinfer::sampling
