// A real model on the CPU and requests that walk through it, for tests of whole forwards.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "model/deepseek_v41/cache_reader.h"
#include "model/deepseek_v41/caches.h"
#include "model/deepseek_v41/model.h"
#include "ops/ops.h"
#include "support/golden_file.h"
#include "support/test_device.h"
#include "tokenizer/engram_vocabulary.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace deepinfer::test {

inline std::vector<TokenId> token_ids(std::span<const std::int32_t> ids) {
  std::vector<TokenId> out;
  for (const std::int32_t id : ids) {
    out.push_back({id});
  }
  return out;
}

inline std::int32_t arg_max(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

/// A model with scattered block ids, so that a wrong block table shows.
struct TestModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<model::DeepseekV41> model;
  model::CacheSizes sizes{};
  std::vector<BlockId> free_blocks;
  std::vector<SlotId> free_slots;

  static TestModel load(const std::filesystem::path& directory, const cpu::CpuOptions& options = {}) {
    return load_on(test_device(options), directory);
  }
  static TestModel load_on(std::unique_ptr<Device> device, const std::filesystem::path& directory,
                           model::EngramTables engram_tables = model::EngramTables::in_memory) {
    TestModel out;
    out.device = std::move(device);
    auto checkpoint = weights::Checkpoint::open(directory);
    check(checkpoint.has_value(), "the test checkpoint opens");
    auto config = model::load_config(directory);
    check(config.has_value(), "the test configuration is valid");
    auto tokenizer = tokenizer::Tokenizer::load(directory / "tokenizer.json");
    check(tokenizer.has_value(), "the test tokenizer loads");
    const model::CacheSizes sizes{.num_blocks = 129,
                                  .num_slots = 33,
                                  .max_rows = 2048,
                                  .max_chunks = 32,
                                  .max_logit_rows = 2048,
                                  .max_blocks_per_request = 32,
                                  .max_drafts = 5};
    auto model = model::DeepseekV41::create(*out.device, *checkpoint, *config, tokenizer::compress_vocabulary(*tokenizer).class_of, sizes,
                                            engram_tables);
    check(model.has_value(), "the test model fits into memory");
    out.model = std::move(*model);
    out.sizes = sizes;
    std::mt19937 random(3);
    for (std::int32_t block = 1; block < sizes.num_blocks; ++block) {
      out.free_blocks.push_back({block});
    }
    for (std::int32_t slot = 1; slot < sizes.num_slots; ++slot) {
      out.free_slots.push_back({slot});
    }
    std::ranges::shuffle(out.free_blocks, random);
    std::ranges::shuffle(out.free_slots, random);
    return out;
  }
};

/// One request: its tokens, blocks and slot. Gives everything back at the end.
class Sequence {
 public:
  explicit Sequence(TestModel& owner) : owner_(owner), slot_(owner.free_slots.back()) { owner_.free_slots.pop_back(); }
  ~Sequence() {
    owner_.free_slots.push_back(slot_);
    owner_.free_blocks.insert(owner_.free_blocks.end(), blocks_.begin(), blocks_.end());
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// The chunk that processes `ids` next; valid until the next call.
  model::Chunk next(std::span<const TokenId> ids, std::int32_t num_logit_rows) {
    const auto first = static_cast<std::int32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    while (blocks_.size() * kBlockPositions < tokens_.size()) {
      blocks_.push_back(owner_.free_blocks.back());
      owner_.free_blocks.pop_back();
    }
    const auto all = std::span<const TokenId>(tokens_);
    const std::size_t reach = std::min<std::size_t>(3, static_cast<std::size_t>(first));
    started_images_.clear();
    std::ranges::copy_if(images, std::back_inserter(started_images_),
                         [this](const model::ImageSpan& span) { return span.first_position < length(); });
    return {.slot = slot_,
            .blocks = blocks_,
            .first_position = first,
            .tokens = all.subspan(static_cast<std::size_t>(first)),
            .previous = all.subspan(static_cast<std::size_t>(first) - reach, reach),
            .num_logit_rows = num_logit_rows,
            .keep_from = keep_from,
            .masks_rows = masks_rows,
            .first_valid = first_valid_,
            .stored_until = stored_until_,
            .images = started_images_};
  }

  /// Prefills in chunks of `chunk` tokens (0: whole) and returns the logits of the last position.
  std::vector<float> prefill(std::span<const TokenId> ids, std::size_t chunk = 0) {
    const std::size_t step = chunk == 0 ? ids.size() : chunk;
    std::vector<float> logits;
    for (std::size_t at = 0; at < ids.size(); at += step) {
      const auto part = ids.subspan(at, std::min(step, ids.size() - at));
      const model::Chunk input = next(part, at + step >= ids.size() ? 1 : 0);
      const std::span<const float> out = owner_.model->forward({&input, 1});
      logits.assign(out.begin(), out.end());
    }
    return logits;
  }

  std::vector<float> decode(TokenId token) { return prefill({&token, 1}); }

  /// Forgets the tokens from `length` on: rejected drafts.
  void rewind(std::int32_t length) { tokens_.resize(static_cast<std::size_t>(length)); }
  [[nodiscard]] SlotId slot() const { return slot_; }

  /// Keeps the blocks of the first `hit` positions and nothing else, and goes on at `start`, as after a prefix hit (10.3).
  void resume_behind_hit(std::int32_t hit, std::int32_t start) {
    const SlotId fresh = owner_.free_slots.back();
    owner_.free_slots.back() = slot_;
    slot_ = fresh;
    tokens_.resize(static_cast<std::size_t>(start));
    first_valid_ = start;
    stored_until_ = hit;
  }
  /// A copy of the bounded state in a slot that stays taken.
  [[nodiscard]] SlotId save_state() {
    const SlotId kept = owner_.free_slots.back();
    owner_.free_slots.pop_back();
    owner_.model->copy_state(slot_, kept);
    return kept;
  }
  /// Goes on at `position`, where the state was saved, as after an exact prefix hit.
  void resume_from(SlotId kept, std::int32_t position) {
    owner_.model->copy_state(kept, slot_);
    tokens_.resize(static_cast<std::size_t>(position));
  }

  [[nodiscard]] model::CacheReader reader() const {
    return {*owner_.device, owner_.model->config(), owner_.model->caches(), slot_, blocks_};
  }
  [[nodiscard]] std::int32_t length() const { return static_cast<std::int32_t>(tokens_.size()); }

  std::int32_t keep_from = 0;
  bool masks_rows = false;
  std::vector<model::ImageSpan> images;  ///< of the whole request

 private:
  TestModel& owner_;
  SlotId slot_;
  std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;
  std::vector<model::ImageSpan> started_images_;
  std::int32_t first_valid_ = 0;
  std::int32_t stored_until_ = 0;
};

}  // namespace deepinfer::test
