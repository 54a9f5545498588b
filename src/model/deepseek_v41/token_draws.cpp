#include "model/deepseek_v41/token_draws.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "model/deepseek_v41/device_memory.h"

namespace deepinfer::model {
namespace {

std::size_t mask_words(std::int32_t vocab_size) { return (static_cast<std::size_t>(vocab_size) + 31) / 32; }

}  // namespace

std::size_t token_draw_bytes(std::int32_t vocab_size) {
  return sizeof(TokenDraw) + 2 * sizeof(std::int32_t) + mask_words(vocab_size) * sizeof(std::uint32_t);
}

Result<TokenDraws> TokenDraws::create(Device& device, std::int32_t max_rows, std::int32_t vocab_size) {
  TokenDraws out;
  out.device_ = &device;
  out.vocab_size_ = vocab_size;
  out.num_words_ = mask_words(vocab_size);
  out.reads_host_memory_ = device.info().reads_host_memory;
  const auto rows = static_cast<std::size_t>(max_rows);
  DeviceMemory memory(device);
  out.draws_ = memory.take<TokenDraw>(rows);
  out.row_index_ = memory.take<std::int32_t>(rows);
  out.tokens_ = memory.take<std::int32_t>(rows);
  out.masks_ = memory.take<std::uint32_t>(rows * out.num_words_);
  Result<std::vector<Buffer>> buffers = std::move(memory).finish("parameters of token draws");
  if (!buffers) {
    return std::unexpected(std::move(buffers.error()));
  }
  out.buffers_ = std::move(*buffers);
  out.buffers_.push_back(device.allocate_host(rows * token_draw_bytes(vocab_size)));
  std::byte* host = out.buffers_.back().data();
  if (host == nullptr) {
    return fail(ErrorKind::exhausted, "the host has no room for the parameters of token draws: " +
                                          std::to_string(rows * token_draw_bytes(vocab_size)) + " bytes wanted; lower --max-requests");
  }
  const auto take = [&]<class T>(T*& place, std::size_t count) {
    place = reinterpret_cast<T*>(host);
    host += count * sizeof(T);
  };
  take(out.host_draws_, rows);
  take(out.host_row_index_, rows);
  take(out.host_tokens_, rows);
  take(out.host_masks_, rows * out.num_words_);
  return out;
}

void TokenDraws::queue(std::span<const RowDraw> rows, const float* logits, Ops& ops, Stream& stream) {
  std::size_t num_draws = 0;
  std::size_t num_masks = 0;
  num_logits_ = 0;
  for (const RowDraw& row : rows) {
    num_logits_ += row.wants_logits ? 1 : 0;
  }
  float* to = reads_host_memory_ && num_logits_ == rows.size() ? nullptr : room_for_logits(num_logits_);
  logits_ = to != nullptr ? to : logits;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const RowDraw& row = rows[r];
    if (row.wants_logits) {
      if (to != nullptr) {
        const auto size = static_cast<std::size_t>(vocab_size_);
        stream.copy(to, logits + r * size, size * sizeof(float));
        to += size;
      }
      continue;
    }
    TokenDraw draw = row.draw;
    draw.mask = -1;
    if (!row.mask.empty()) {
      check(row.mask.size() == num_words_, "a mask has a bit for every column");
      draw.mask = static_cast<std::int32_t>(num_masks);
      std::ranges::copy(row.mask, host_masks_ + num_masks * num_words_);
      ++num_masks;
    }
    host_row_index_[num_draws] = static_cast<std::int32_t>(r);
    host_draws_[num_draws] = draw;
    ++num_draws;
  }
  num_tokens_ = num_draws;
  if (num_draws == 0) {
    return;
  }
  stream.copy(draws_, host_draws_, num_draws * sizeof(TokenDraw));
  const bool draws_every_row = num_draws == rows.size();
  if (!draws_every_row) {
    stream.copy(row_index_, host_row_index_, num_draws * sizeof(std::int32_t));
  }
  stream.copy(masks_, host_masks_, num_masks * num_words_ * sizeof(std::uint32_t));
  ops.draw_tokens(stream, {.num_rows = static_cast<std::int32_t>(num_draws),
                           .vocab = vocab_size_,
                           .logits = logits,
                           .row_index = draws_every_row ? nullptr : row_index_,
                           .draw = draws_,
                           .masks = masks_,
                           .token = tokens_});
  stream.copy(host_tokens_, tokens_, num_draws * sizeof(std::int32_t));
}

void TokenDraws::queue_logits(std::int32_t num_rows, const float* logits, Stream& stream) {
  num_tokens_ = 0;
  num_logits_ = static_cast<std::size_t>(num_rows);
  logits_ = logits;
  if (!reads_host_memory_) {
    float* const to = room_for_logits(num_logits_);
    stream.copy(to, logits, num_logits_ * static_cast<std::size_t>(vocab_size_) * sizeof(float));
    logits_ = to;
  }
}

StepRows TokenDraws::rows() const {
  return {.logits = {logits_, num_logits_ * static_cast<std::size_t>(vocab_size_)}, .tokens = {host_tokens_, num_tokens_}};
}

void TokenDraws::upload_drafts(std::span<const TokenDraw> draws, std::int32_t num_drafts, Stream& stream) {
  std::size_t count = 0;
  for (std::int32_t i = 0; i < num_drafts; ++i) {
    for (TokenDraw draw : draws) {
      draw.position += i;
      draw.mask = -1;
      host_draws_[count] = draw;
      ++count;
    }
  }
  stream.copy(draws_, host_draws_, count * sizeof(TokenDraw));
}

void TokenDraws::draw_draft(std::int32_t index, std::int32_t num_requests, const float* logits, std::int32_t* tokens, Ops& ops,
                            Stream& stream) const {
  ops.draw_tokens(stream, {.num_rows = num_requests,
                           .vocab = vocab_size_,
                           .logits = logits,
                           .row_index = nullptr,
                           .draw = draws_ + static_cast<std::ptrdiff_t>(index) * num_requests,
                           .masks = nullptr,
                           .token = tokens,
                           .always = true});
}

float* TokenDraws::room_for_logits(std::size_t num_rows) {
  if (num_rows > max_host_logits_) {
    max_host_logits_ = std::max(num_rows, 2 * max_host_logits_);
    host_logits_ = device_->allocate_host(max_host_logits_ * static_cast<std::size_t>(vocab_size_) * sizeof(float));
    check(host_logits_.data() != nullptr, "the host has room for the logits that were asked for");
  }
  return reinterpret_cast<float*>(host_logits_.data());
}

}  // namespace deepinfer::model
