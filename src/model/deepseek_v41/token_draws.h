// Tokens of a step's rows, drawn on the device: parameters and masks go up, tokens come back, and logits of those rows only that the
// caller wants to see. Not here: how a token is drawn (Ops::draw_tokens, sampling).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::model {

/// Bytes on the device for one row.
[[nodiscard]] std::size_t token_draw_bytes(std::int32_t vocab_size);

class TokenDraws {
 public:
  static Result<TokenDraws> create(Device& device, std::int32_t max_rows, std::int32_t vocab_size);

  /// Queues draws for rows of `logits`, [rows.size(), vocab] in the device's memory, and the copies of what is to be known of them.
  void queue(std::span<const RowDraw> rows, const float* logits, Ops& ops, Stream& stream);
  /// Queues copies of the logits of rows 0 … num_rows − 1.
  void queue_logits(std::int32_t num_rows, const float* logits, Stream& stream);
  /// Of the last queue() or queue_logits(), once the stream was waited for.
  [[nodiscard]] StepRows rows() const;

  /// Draws of a draft pass: `draws` [requests] for the first draft of each, the next ones are for the positions behind. Queues their upload.
  void upload_drafts(std::span<const TokenDraw> draws, std::int32_t num_drafts, Stream& stream);
  /// Issues draft number `index`: logits [requests, vocab]; rows without a token give column 0.
  void draw_draft(std::int32_t index, std::int32_t num_requests, const float* logits, std::int32_t* tokens, Ops& ops, Stream& stream) const;

 private:
  TokenDraws() = default;

  /// Host memory for the logits of so many rows.
  float* room_for_logits(std::size_t num_rows);

  Device* device_ = nullptr;
  std::int32_t vocab_size_ = 0;
  std::size_t num_words_ = 0;  // of a mask
  bool reads_host_memory_ = false;
  // On the device, [max_rows] each.
  TokenDraw* draws_ = nullptr;
  std::int32_t* row_index_ = nullptr;
  std::int32_t* tokens_ = nullptr;
  std::uint32_t* masks_ = nullptr;  // [max_rows, num_words]
  // On the host.
  TokenDraw* host_draws_ = nullptr;
  std::int32_t* host_row_index_ = nullptr;
  std::int32_t* host_tokens_ = nullptr;
  std::uint32_t* host_masks_ = nullptr;
  std::vector<Buffer> buffers_;
  Buffer host_logits_;
  std::size_t max_host_logits_ = 0;  // rows
  const float* logits_ = nullptr;    // of the last queue
  std::size_t num_logits_ = 0;       // rows
  std::size_t num_tokens_ = 0;
};

}  // namespace deepinfer::model
