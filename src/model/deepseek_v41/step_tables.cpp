#include "model/deepseek_v41/step_tables.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"
#include "model/deepseek_v41/device_memory.h"

namespace deepinfer::model {

namespace {

/// The part of a chunk behind the split layer: its rows in the rectangle, or one placeholder that sees no window.
struct Kept {
  std::int32_t skipped = 0;  // rows of the chunk that leave
  bool is_placeholder = false;
};

Kept kept_part(const Chunk& chunk) {
  const auto num_rows = static_cast<std::int32_t>(chunk.tokens.size());
  const std::int32_t before = std::clamp(chunk.keep_from - chunk.first_position, 0, num_rows);
  if (chunk.masks_rows) {
    return {};
  }
  return before == num_rows ? Kept{.skipped = num_rows - 1, .is_placeholder = true} : Kept{.skipped = before, .is_placeholder = false};
}

/// The position lies in the span of an image.
bool is_image(const Chunk& chunk, std::int32_t position) {
  return std::ranges::any_of(chunk.images, [position](const ImageSpan& span) {
    return position >= span.first_position && position - span.first_position < span.num_tokens;
  });
}

bool has_image_rows(const Chunk& chunk) {
  const auto end = chunk.first_position + static_cast<std::int32_t>(chunk.tokens.size());
  bool found = false;
  for (const ImageSpan& span : chunk.images) {
    const std::int32_t span_end = span.first_position + span.num_tokens;
    if (span_end <= chunk.first_position) {
      continue;
    }
    check(span.first_position >= chunk.first_position && span_end <= end, "a chunk does not cut the span of an image");
    check(span.rows != nullptr, "an image in a chunk comes with its embedding rows");
    found = true;
  }
  return found;
}

/// Bytes of flags as elements of the tables.
std::size_t flag_words(std::size_t num_rows) { return (num_rows + sizeof(std::int32_t) - 1) / sizeof(std::int32_t); }

}  // namespace

Result<StepTables> StepTables::create(Device& device, const Config& config, const CacheSizes& sizes, const EngramHash& hash) {
  StepTables out(config, hash);
  out.max_blocks_ = sizes.max_blocks_per_request;
  const auto rows = static_cast<std::size_t>(sizes.max_rows);
  const auto chunks = static_cast<std::size_t>(sizes.max_chunks);
  const std::size_t row_set = 4 * rows + chunks * (5 + static_cast<std::size_t>(out.max_blocks_));
  const std::size_t group_sets = 2 * 3 * rows;
  const std::size_t engram = hash.num_layers() * static_cast<std::size_t>(hash.num_columns()) * rows;
  const std::size_t capacity = 2 * row_set + group_sets + engram + 2 * rows + 2 * flag_words(rows);  // + tokens, logit rows, flags
  out.kept_ranges_.reserve(chunks);
  out.logit_rows_.reserve(rows);
  DeviceMemory memory(device);
  out.device_ = memory.take<std::int32_t>(capacity);
  Result<std::vector<Buffer>> buffers = std::move(memory).finish("step tables");
  if (!buffers) {
    return std::unexpected(std::move(buffers.error()));
  }
  out.buffers_ = std::move(*buffers);
  out.buffers_.push_back(device.allocate_host(capacity * sizeof(std::int32_t)));
  if (out.buffers_.back().data() == nullptr) {
    return fail(ErrorKind::exhausted, "the host has no room for the step tables: " + std::to_string(capacity * sizeof(std::int32_t)) +
                                          " bytes wanted; lower --max-requests or --max-model-len");
  }
  out.host_ = {reinterpret_cast<std::int32_t*>(out.buffers_.back().data()), capacity};
  return out;
}

std::int32_t* StepTables::take(std::size_t count) {
  check(used_ + count <= host_.size(), "a step stays within the sizes the model was created for");
  std::int32_t* out = host_.data() + used_;
  used_ += count;
  return out;
}

RowSet StepTables::build_rows(std::span<const Chunk> chunks, RowKind kind) {
  const bool is_kept = kind == RowKind::kept;
  const bool is_draft = kind == RowKind::draft;
  std::size_t num_rows = 0;
  for (const Chunk& chunk : chunks) {
    num_rows += chunk.tokens.size() - static_cast<std::size_t>(is_kept ? kept_part(chunk).skipped : 0);
  }
  std::int32_t* position = take(num_rows);
  std::int32_t* chunk_of = take(num_rows);
  std::int32_t* low = take(num_rows);
  std::int32_t* high = take(num_rows);
  std::int32_t* first_row = take(chunks.size());
  std::int32_t* chunk_rows = take(chunks.size());
  std::int32_t* first_position = take(chunks.size());
  std::int32_t* slot = take(chunks.size());
  std::int32_t* stored = take(chunks.size());
  std::int32_t* table = take(chunks.size() * static_cast<std::size_t>(table_blocks_));

  std::int32_t row = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Chunk& chunk = chunks[c];
    const Kept kept = is_kept ? kept_part(chunk) : Kept{};
    first_row[c] = row;
    chunk_rows[c] = static_cast<std::int32_t>(chunk.tokens.size()) - kept.skipped;
    first_position[c] = chunk.first_position + kept.skipped;
    slot[c] = chunk.slot.value;
    // Masked rows leave no trace, as if they were not there.
    const std::int32_t end = first_position[c] + chunk_rows[c];
    const std::int32_t visible = is_kept && chunk.masks_rows ? std::clamp(end - chunk.keep_from, 0, chunk_rows[c]) : chunk_rows[c];
    stored[c] = kept.is_placeholder || is_draft ? 0 : visible;
    const std::int32_t bound = std::max(chunk.first_valid, is_kept ? chunk.keep_from : 0);
    for (std::int32_t i = 0; i < chunk_rows[c]; ++i, ++row) {
      position[row] = first_position[c] + i;
      chunk_of[row] = static_cast<std::int32_t>(c);
      high[row] = is_draft ? first_position[c] + chunk_rows[c] - 1 : position[row];
      const std::int32_t window_end = is_draft ? first_position[c] - 1 : position[row];
      low[row] = kept.is_placeholder ? high[row] + 1 : std::max(window_end - config_->sliding_window + 1, bound);
    }
    std::int32_t* blocks = table + c * static_cast<std::size_t>(table_blocks_);
    for (std::int32_t b = 0; b < table_blocks_; ++b) {
      blocks[b] = static_cast<std::size_t>(b) < chunk.blocks.size() ? chunk.blocks[static_cast<std::size_t>(b)].value : 0;
    }
  }
  return {.rows = {.num_rows = row, .position = on_device(position), .chunk = on_device(chunk_of)},
          .chunks = {.num_chunks = static_cast<std::int32_t>(chunks.size()),
                     .first_row = on_device(first_row),
                     .num_rows = on_device(chunk_rows),
                     .first_position = on_device(first_position),
                     .slot = on_device(slot),
                     .block_table = on_device(table),
                     .max_blocks = table_blocks_},
          .window_low = on_device(low),
          .window_high = on_device(high),
          .stored_rows = on_device(stored),
          .is_image = build_image_flags(chunks, is_kept)};
}

const std::uint8_t* StepTables::build_image_flags(std::span<const Chunk> chunks, bool is_kept) {
  if (!has_images_) {
    return nullptr;
  }
  std::size_t num_rows = 0;
  for (const Chunk& chunk : chunks) {
    num_rows += chunk.tokens.size() - static_cast<std::size_t>(is_kept ? kept_part(chunk).skipped : 0);
  }
  std::int32_t* words = take(flag_words(num_rows));
  auto* flags = reinterpret_cast<std::uint8_t*>(words);
  for (const Chunk& chunk : chunks) {
    const auto end = chunk.first_position + static_cast<std::int32_t>(chunk.tokens.size());
    for (std::int32_t p = chunk.first_position + (is_kept ? kept_part(chunk).skipped : 0); p < end; ++p) {
      *flags++ = is_image(chunk, p) ? 1 : 0;
    }
  }
  return reinterpret_cast<const std::uint8_t*>(on_device(words));
}

void StepTables::build_groups(std::span<const Chunk> chunks, std::int32_t ratio) {
  std::size_t num_groups = 0;
  for (const Chunk& chunk : chunks) {
    const auto end = chunk.first_position + static_cast<std::int32_t>(chunk.tokens.size());
    num_groups += static_cast<std::size_t>(end / ratio - chunk.first_position / ratio);
  }
  std::int32_t* row = take(num_groups);
  std::int32_t* position = take(num_groups);
  std::int32_t* place = take(num_groups);
  const std::int32_t rows_per_block = kBlockPositions / ratio;
  std::int32_t chunk_row = 0;
  std::size_t at = 0;
  for (const Chunk& chunk : chunks) {
    const auto end = chunk.first_position + static_cast<std::int32_t>(chunk.tokens.size());
    for (std::int32_t group = chunk.first_position / ratio; group < end / ratio; ++group, ++at) {
      const std::int32_t last = group * ratio + ratio - 1;
      row[at] = chunk_row + last - chunk.first_position;
      position[at] = group * ratio;
      const BlockId block = chunk.blocks[static_cast<std::size_t>(group / rows_per_block)];
      place[at] = last < chunk.stored_until ? -1 : block.value * rows_per_block + group % rows_per_block;
    }
    chunk_row += static_cast<std::int32_t>(chunk.tokens.size());
  }
  groups_[static_cast<std::size_t>(ratio)] = {.num_groups = static_cast<std::int32_t>(num_groups),
                                              .row = on_device(row),
                                              .position = on_device(position),
                                              .place = on_device(place)};
}

void StepTables::build_engram(std::span<const Chunk> chunks) {
  const auto columns = static_cast<std::size_t>(hash_->num_columns());
  for (std::size_t index = 0; index < hash_->num_layers(); ++index) {
    std::int32_t* rows = take(static_cast<std::size_t>(all_.rows.num_rows) * columns);
    engram_rows_.push_back(on_device(rows));
    for (const Chunk& chunk : chunks) {
      classes_.clear();
      std::int32_t position = chunk.first_position - static_cast<std::int32_t>(chunk.previous.size());
      const auto add_class = [&](TokenId token) {
        classes_.push_back(is_image(chunk, position++) ? EngramHash::kImageClass : hash_->class_of(token.value));
      };
      std::ranges::for_each(chunk.previous, add_class);
      for (const TokenId token : chunk.tokens) {
        add_class(token);
        hash_->rows(index, classes_, {rows, columns});
        rows += columns;
      }
    }
  }
}

/// Empty tables, and the tokens of all chunks.
void StepTables::begin(std::span<const Chunk> chunks) {
  used_ = 0;
  kept_ranges_.clear();
  logit_rows_.clear();
  engram_rows_.clear();
  drops_rows_ = false;
  has_images_ = false;
  std::size_t num_rows = 0;
  std::size_t num_blocks = 1;
  for (const Chunk& chunk : chunks) {
    num_rows += chunk.tokens.size();
    num_blocks = std::max(num_blocks, chunk.blocks.size());
  }
  // Powers of two: few shapes of steps to record, and no tables for the longest context while all are short.
  table_blocks_ = std::min(max_blocks_, static_cast<std::int32_t>(std::bit_ceil(num_blocks)));
  std::int32_t* tokens = take(num_rows);
  tokens_ = on_device(tokens);
  for (const Chunk& chunk : chunks) {
    tokens = std::transform(chunk.tokens.begin(), chunk.tokens.end(), tokens, [](TokenId id) { return id.value; });
  }
}

void StepTables::finish(Stream& stream) {
  std::int32_t* logit_rows = take(logit_rows_.size());
  std::copy(logit_rows_.begin(), logit_rows_.end(), logit_rows);
  device_logit_rows_ = on_device(logit_rows);
  stream.copy(device_, host_.data(), used_ * sizeof(std::int32_t));
}

void StepTables::build_drafts(std::span<const Chunk> chunks, Stream& stream) {
  begin(chunks);
  is_draft_ = true;
  all_ = build_rows(chunks, RowKind::draft);
  kept_ = all_;
  groups_ = {};
  const auto num_chunks = static_cast<std::int32_t>(chunks.size());
  const std::int32_t block = all_.rows.num_rows / num_chunks;
  for (std::int32_t i = 0; i < block; ++i) {
    for (std::int32_t chunk = 0; chunk < num_chunks; ++chunk) {
      logit_rows_.push_back(chunk * block + i);
    }
  }
  finish(stream);
}

void StepTables::build(std::span<const Chunk> chunks, Stream& stream) {
  begin(chunks);
  is_draft_ = false;
  bool has_rectangle = false;
  std::int32_t first_row = 0;
  std::int32_t kept_row = 0;
  for (const Chunk& chunk : chunks) {
    const auto num_rows = static_cast<std::int32_t>(chunk.tokens.size());
    check(num_rows > 0, "a chunk has at least one token");
    check(chunk.blocks.size() <= static_cast<std::size_t>(max_blocks_) &&
              static_cast<std::int64_t>(chunk.blocks.size()) * kBlockPositions >= chunk.first_position + num_rows,
          "the blocks of a chunk cover its tokens and fit the table");
    check(static_cast<std::int32_t>(chunk.previous.size()) >= std::min(hash_->lookback(), chunk.first_position),
          "a chunk comes with the tokens its n-grams reach back to");
    has_images_ = has_image_rows(chunk) || has_images_;
    const Kept kept = kept_part(chunk);
    drops_rows_ = drops_rows_ || kept.skipped > 0;
    has_rectangle = has_rectangle || chunk.keep_from > 0;
    kept_ranges_.push_back({.first = first_row + kept.skipped, .count = num_rows - kept.skipped});
    kept_row += num_rows - kept.skipped;
    first_row += num_rows;
    check(chunk.num_logit_rows <= num_rows - kept.skipped, "logits exist only for kept rows");
    for (std::int32_t i = chunk.num_logit_rows; i > 0; --i) {
      logit_rows_.push_back(kept_row - i);
    }
  }
  all_ = build_rows(chunks, RowKind::all);
  kept_ = has_rectangle ? build_rows(chunks, RowKind::kept) : all_;
  build_groups(chunks, 1);
  build_groups(chunks, 2);
  build_engram(chunks);
  finish(stream);
}

}  // namespace deepinfer::model
