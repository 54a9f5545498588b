// The largest steps once, before the first request: operations take the memory they need, kernels are brought to the device, and a device
// that has no room for them is refused here.
#include <algorithm>
#include <vector>

#include "model/deepseek_v41/model_state.h"

namespace deepinfer::model {

/// All rows at the end of the longest context, in padding blocks and the padding slot; what they leave there is never read.
Result<void> DeepseekV41::State::warm_up() {
  const std::int32_t max_positions = sizes.max_blocks_per_request * kBlockPositions;
  const std::int32_t rows_each = std::min(sizes.max_rows, max_positions - 1);
  const std::vector<BlockId> blocks(static_cast<std::size_t>(sizes.max_blocks_per_request));
  const std::vector<TokenId> tokens(static_cast<std::size_t>(rows_each));
  const std::vector<TokenId> previous(static_cast<std::size_t>(std::min(hash.lookback(), max_positions - rows_each)));
  std::vector<Chunk> chunks;
  std::int32_t rows_left = sizes.max_rows;
  for (; rows_left > 0 && static_cast<std::int32_t>(chunks.size()) < sizes.max_chunks; rows_left -= rows_each) {
    chunks.push_back({.slot = {},
                      .blocks = blocks,
                      .first_position = max_positions - rows_each,
                      .tokens = std::span(tokens).first(static_cast<std::size_t>(std::min(rows_left, rows_each))),
                      .previous = previous});
  }
  chunks.front().num_logit_rows = std::min<std::int32_t>(sizes.max_logit_rows, static_cast<std::int32_t>(chunks.front().tokens.size()));
  tables->build(chunks, *stream);
  pass().run();
  draws.queue(std::vector<RowDraw>(static_cast<std::size_t>(chunks.front().num_logit_rows), {.draw = {.top_p = 0.5}}), workspace.logits,
              device.ops(), *stream);
  stream->synchronize();
  if (sizes.max_drafts > 0) {
    const DraftStart last{.slot = {}, .position = max_positions - sizes.max_drafts - 1, .anchor = {}};
    const std::vector<DraftStart> starts(static_cast<std::size_t>(sizes.max_chunks), last);
    begin_drafts(starts, sizes.max_drafts);
    pass().run_drafter();
    add_markov(0, sizes.max_chunks);
    stream->synchronize();
  }
  if (const std::string_view fault = stream->fault(); !fault.empty()) {
    return fail(ErrorKind::exhausted, std::string(fault) + " in the largest step; lower --max-batched-tokens, --max-requests or --max-model-len");
  }
  return {};
}

}  // namespace deepinfer::model
