// A model of a few lines whose logits depend on everything a real one's may depend on and on nothing else: each token of the history
// as it lies behind the block table, a ring in the slot, the tokens before the chunk, the position. A wrong block, slot, position or
// chunk border changes every following token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/token_drawer.h"
#include "base/check.h"
#include "base/ids.h"
#include "kvcache/cache_pool.h"
#include "model/deepseek_v41/model.h"

namespace deepinfer::test {

class FakeModel {
 public:
  static constexpr std::int32_t kRing = 8;  // rows of a slot: one that is read, and as many as drafts may overwrite
  static constexpr std::int32_t kLookback = 3;
  static constexpr std::int32_t kNoToken = -1;

  FakeModel(kvcache::CacheGeometry geometry, std::int32_t vocab_size)
      : geometry_(geometry),
        vocab_size_(vocab_size),
        rows_(static_cast<std::size_t>(geometry.num_blocks * geometry.positions_per_block), kNoToken),
        rings_(static_cast<std::size_t>(geometry.num_slots * kRing)),
        texts_(static_cast<std::size_t>(geometry.num_slots)) {
    for (auto& text : texts_) {
      text.reserve(static_cast<std::size_t>(std::min(geometry.num_blocks * geometry.positions_per_block, 2000)));
    }
  }

  /// A history with this token has logits that are not numbers.
  TokenId bad_token{kNoToken};
  /// The drafter's logits are the model's own, but of every so many positions one has others; 1: all have. 0: none. Below 0: they say nothing
  /// and cost no memory.
  std::int32_t draft_error_every = 3;
  /// What is wrong with the device from the next wait on.
  std::string fault;
  /// Called at the start of every forward.
  std::function<void(std::span<const model::Chunk>)> on_forward;

  std::span<const float> forward(std::span<const model::Chunk> chunks) {
    if (on_forward) {
      on_forward(chunks);
    }
    logits_.clear();
    for (const model::Chunk& chunk : chunks) {
      compute(chunk);
    }
    return logits_;
  }

  /// What is wanted of the rows of the last forward.
  void draw(std::span<const model::RowDraw> rows) {
    wanted_.clear();
    drawn_.clear();
    const auto size = static_cast<std::size_t>(vocab_size_);
    check(rows.size() * size == logits_.size(), "something is wanted of every row");
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::span<const float> logits = std::span(logits_).subspan(r * size, size);
      if (rows[r].wants_logits) {
        wanted_.insert(wanted_.end(), logits.begin(), logits.end());
      } else {
        drawn_.push_back(draw_one(logits, rows[r]));
      }
    }
  }
  [[nodiscard]] model::StepRows drawn_rows() const { return {.logits = wanted_, .tokens = drawn_}; }

  /// The drafter's tokens by its own draws.
  model::DrawnDrafts draft_drawn(std::span<const model::DraftStart> starts, std::int32_t num_drafts, std::span<const TokenDraw> draws) {
    drafted_.clear();
    model::PickDrafts pick = [&](std::int32_t index, std::span<const float> logits, std::span<TokenId> tokens) {
      const auto size = static_cast<std::size_t>(vocab_size_);
      for (std::size_t r = 0; r < starts.size(); ++r) {
        model::RowDraw draw{.draw = draws[r]};
        draw.draw.position += index;
        tokens[r] = {std::max(draw_one(logits.subspan(r * size, size), draw), 0)};
        drafted_.push_back(tokens[r].value);
      }
    };
    const auto confidences = draft(starts, num_drafts, pick);
    return {.tokens = drafted_, .confidences = confidences};
  }

  /// A drafter that knows the tokens of its slot.
  std::span<const float> draft(std::span<const model::DraftStart> starts, std::int32_t num_drafts, model::PickDrafts& pick) {
    confidences_.assign(starts.size() * static_cast<std::size_t>(num_drafts), 0);
    if (draft_error_every < 0) {
      picked_.resize(starts.size());
      for (std::int32_t i = 0; i < num_drafts; ++i) {
        logits_.assign(starts.size() * static_cast<std::size_t>(vocab_size_), 0.0F);
        pick(i, logits_, picked_);
      }
      return confidences_;
    }
    std::vector<std::vector<std::int32_t>> texts;
    for (const model::DraftStart& start : starts) {
      std::vector<std::int32_t> text = texts_.at(static_cast<std::size_t>(start.slot.value));
      text.resize(static_cast<std::size_t>(start.position), kNoToken);
      text.push_back(start.anchor.value);
      texts.push_back(std::move(text));
    }
    std::vector<TokenId> tokens(starts.size());
    for (std::int32_t i = 0; i < num_drafts; ++i) {
      logits_.clear();
      for (std::size_t r = 0; r < starts.size(); ++r) {
        const std::uint64_t hash = hash_of(texts[r]);
        const bool errs = draft_error_every > 0 && hash % static_cast<std::uint64_t>(draft_error_every) == 0;
        append_logits(errs ? mix(hash, 1) : hash, false);
        confidences_[static_cast<std::size_t>(i) * starts.size() + r] = errs ? -2.0F : 2.0F;
      }
      pick(i, logits_, tokens);
      for (std::size_t r = 0; r < starts.size(); ++r) {
        texts[r].push_back(tokens[r].value);
      }
    }
    return confidences_;
  }
  /// One row of one value per position of the span of an image: its pixels and the place in it.
  std::vector<bf16> encode_image(const model::ImagePixels& image) {
    ++num_encoded;
    std::uint64_t hash = mix(static_cast<std::uint64_t>(image.width), static_cast<std::uint64_t>(image.height));
    for (const std::uint8_t value : image.rgb) {
      hash = mix(hash, value);
    }
    std::vector<bf16> out(static_cast<std::size_t>(image.height * (image.width + 1) + 2));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = {static_cast<std::uint16_t>(mix(hash, i) >> 40)};
    }
    return out;
  }
  int num_encoded = 0;
  /// The same in pieces.
  void begin_image(const model::ImagePixels& image) {
    num_pieces_left_ = num_image_pieces;
    image_rows_ = encode_image(image);
  }
  std::optional<std::vector<bf16>> advance_image() {
    check(num_pieces_left_ > 0, "an image was begun");
    return --num_pieces_left_ == 0 ? std::optional(image_rows_) : std::nullopt;
  }
  int num_image_pieces = 2;

  /// The memory of one block and of one slot.
  std::span<std::byte> block_memory(BlockId block) {
    const auto size = static_cast<std::size_t>(geometry_.positions_per_block);
    return std::as_writable_bytes(std::span(rows_).subspan(static_cast<std::size_t>(block.value) * size, size));
  }
  std::span<std::byte> state_memory(SlotId slot) {
    return std::as_writable_bytes(std::span(rings_).subspan(static_cast<std::size_t>(slot.value * kRing), kRing));
  }

  void copy_state(SlotId from, SlotId to) {
    for (std::int32_t row = 0; row < kRing; ++row) {
      rings_.at(static_cast<std::size_t>(to.value * kRing + row)) = rings_.at(static_cast<std::size_t>(from.value * kRing + row));
    }
    texts_.at(static_cast<std::size_t>(to.value)) = texts_.at(static_cast<std::size_t>(from.value));
  }

 private:
  std::int32_t draw_one(std::span<const float> logits, const model::RowDraw& row) {
    TokenDraw draw = row.draw;
    draw.mask = row.mask.empty() ? -1 : 0;
    std::int32_t token = 0;
    drawer_.draw({.num_rows = 1, .vocab = vocab_size_, .logits = logits.data(), .draw = &draw, .masks = row.mask.data(), .token = &token}, 0);
    return token;
  }

  struct RingRow {
    std::int32_t position = -1;
    std::uint64_t hash = 0x5EED;
  };

  static std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15;
    return hash ^ (hash >> 29);
  }

  /// The hash that compute() has behind a text.
  static std::uint64_t hash_of(std::span<const std::int32_t> text) {
    RingRow last;
    for (std::size_t position = 0; position < text.size(); ++position) {
      std::uint64_t hash = 0;
      for (std::size_t p = 0; p <= position; ++p) {
        hash = mix(hash, static_cast<std::uint64_t>(text[p]));
      }
      for (std::size_t back = 1; back <= std::min<std::size_t>(kLookback, position); ++back) {
        hash = mix(hash, static_cast<std::uint64_t>(text[position - back]));
      }
      if (position > 0) {
        hash = mix(mix(hash, static_cast<std::uint64_t>(last.position)), last.hash);
      }
      last = {.position = static_cast<std::int32_t>(position), .hash = hash};
    }
    return last.hash;
  }

  /// What a row shows: a token, or a piece of an image.
  static std::int32_t shown(const model::Chunk& chunk, std::int32_t i) {
    const std::int32_t position = chunk.first_position + i;
    for (const model::ImageSpan& span : chunk.images) {
      const std::int32_t end = span.first_position + span.num_tokens;
      check(end <= chunk.first_position || (span.first_position >= chunk.first_position &&
                                            end <= chunk.first_position + static_cast<std::int32_t>(chunk.tokens.size())),
            "a chunk does not cut an image");
      if (position >= span.first_position && position < end) {
        return 1000 + span.rows[position - span.first_position].bits;
      }
    }
    return chunk.tokens[static_cast<std::size_t>(i)].value;
  }

  std::int32_t& row(const model::Chunk& chunk, std::int32_t position) {
    const auto block = static_cast<std::size_t>(position / geometry_.positions_per_block);
    check(block < chunk.blocks.size(), "the block table covers the chunk");
    const std::int32_t id = chunk.blocks[block].value;
    return rows_.at(static_cast<std::size_t>(id * geometry_.positions_per_block + position % geometry_.positions_per_block));
  }

  RingRow& ring(const model::Chunk& chunk, std::int32_t position) {
    return rings_.at(static_cast<std::size_t>(chunk.slot.value * kRing + position % kRing));
  }

  void compute(const model::Chunk& chunk) {
    check(chunk.slot.value > 0, "the padding slot is not used");
    const auto num_tokens = static_cast<std::int32_t>(chunk.tokens.size());
    const auto num_previous = static_cast<std::int32_t>(chunk.previous.size());
    check(num_previous >= std::min(kLookback, chunk.first_position), "a chunk is told the tokens before it");
    for (std::int32_t i = 0; i < num_tokens; ++i) {
      const std::int32_t position = chunk.first_position + i;
      if (position < chunk.stored_until) {
        check(row(chunk, position) == shown(chunk, i), "a shared row holds the token of everybody's prefix");
      } else {
        row(chunk, position) = shown(chunk, i);
      }
      std::uint64_t hash = 0;
      bool bad = false;
      for (std::int32_t p = 0; p <= position; ++p) {
        hash = mix(hash, static_cast<std::uint64_t>(row(chunk, p)));
        bad = bad || row(chunk, p) == bad_token.value;
      }
      for (std::int32_t back = 1; back <= std::min(kLookback, position); ++back) {
        const std::int32_t place = i - back;
        const TokenId before =
            place >= 0 ? chunk.tokens[static_cast<std::size_t>(place)] : chunk.previous[static_cast<std::size_t>(num_previous + place)];
        hash = mix(hash, static_cast<std::uint64_t>(before.value));
      }
      if (position > 0) {
        const RingRow& last = ring(chunk, position - 1);
        hash = mix(mix(hash, static_cast<std::uint64_t>(last.position)), last.hash);
      }
      ring(chunk, position) = {.position = position, .hash = hash};
      std::vector<std::int32_t>& text = texts_.at(static_cast<std::size_t>(chunk.slot.value));
      text.resize(static_cast<std::size_t>(position), kNoToken);
      text.push_back(chunk.tokens[static_cast<std::size_t>(i)].value);
      if (i >= num_tokens - chunk.num_logit_rows) {
        append_logits(hash, bad);
      }
    }
  }

  void append_logits(std::uint64_t hash, bool bad) {
    for (std::int32_t column = 0; column < vocab_size_; ++column) {
      const auto bits = mix(hash, static_cast<std::uint64_t>(column) + 1) >> 44;  // 20 bits
      logits_.push_back(bad ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(bits) * 0x1p-17F - 4.0F);
    }
  }

  kvcache::CacheGeometry geometry_;
  std::int32_t vocab_size_;
  cpu::TokenDrawer drawer_;
  std::vector<std::int32_t> rows_;  // token per position of every block, of whoever wrote it last
  std::vector<RingRow> rings_;
  std::vector<std::vector<std::int32_t>> texts_;  // tokens of every slot, for the drafter only
  std::vector<float> confidences_;
  std::vector<TokenId> picked_;
  std::vector<float> logits_;
  std::vector<float> wanted_;          // of draw()
  std::vector<std::int32_t> drawn_;    // likewise
  std::vector<std::int32_t> drafted_;  // of draft_drawn()
  std::vector<bf16> image_rows_;
  int num_pieces_left_ = 0;
};

}  // namespace deepinfer::test
