// Everything the kernels need to know about the rows of one forward besides their values: positions, places in the caches,
// visibility, Engram rows. Built on the host from plain values, uploaded in one copy.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/engram_hash.h"
#include "model/deepseek_v41/model.h"
#include "model/deepseek_v41/recorded_steps.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::model {

/// Rows that pass through the same layers. Device pointers.
struct RowSet {
  RowTable rows;
  ChunkTable chunks;
  const std::int32_t* window_low = nullptr;   // [rows]
  const std::int32_t* window_high = nullptr;  // [rows]
  const std::int32_t* stored_rows = nullptr;  // [chunks] rows that enter the rings
  const std::uint8_t* is_image = nullptr;     // [rows] 1 inside the span of an image; null when no row of the step is
};

/// Compressed rows that this step completes at one ratio. Device pointers.
struct GroupSet {
  std::int32_t num_groups = 0;
  const std::int32_t* row = nullptr;       // [groups] row of the last token
  const std::int32_t* position = nullptr;  // [groups] first token: where the rotation stands
  const std::int32_t* place = nullptr;     // [groups] block * rows_per_block + row in block; -1: cached already
};

/// Which of a step's rows a set is made of: all, those behind the split layer, or the blocks of a draft pass.
enum class RowKind : std::uint8_t { all, kept, draft };

/// Rows [first, first + count) of the full set that stay behind the split layer.
struct KeptRange {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

class StepTables {
 public:
  static Result<StepTables> create(Device& device, const Config& config, const CacheSizes& sizes, const EngramHash& hash);

  /// Fills the tables for `chunks` (within the sizes given at creation) and queues the upload.
  void build(std::span<const Chunk> chunks, Stream& stream);
  /// The same for a draft pass (section 7): every chunk is one block of equal length at the positions behind the last processed one, whose
  /// rows see the window before the block and all of the block, and leave no trace. Logits of all rows, position by position: row i * chunks + c
  /// is that of position i of chunk c.
  void build_drafts(std::span<const Chunk> chunks, Stream& stream);

  /// What the work of this step depends on besides the contents of tables.
  [[nodiscard]] StepShape shape() const {
    return {.rows = all_.rows.num_rows,
            .chunks = all_.chunks.num_chunks,
            .logit_rows = static_cast<std::int32_t>(logit_rows_.size()),
            .groups_1 = groups_[1].num_groups,
            .groups_2 = groups_[2].num_groups,
            .table_blocks = table_blocks_,
            .has_rectangle = kept_.rows.position != all_.rows.position,
            .is_draft = is_draft_};
  }
  [[nodiscard]] const std::int32_t* tokens() const { return tokens_; }                   // [rows of all()]
  [[nodiscard]] const RowSet& all() const { return all_; }                               // layers before the split layer
  [[nodiscard]] const RowSet& kept() const { return kept_; }                             // the split layer and after
  [[nodiscard]] bool has_images() const { return has_images_; }                          // some row lies in the span of an image
  [[nodiscard]] bool drops_rows() const { return drops_rows_; }                          // kept() has fewer rows than all()
  [[nodiscard]] std::span<const KeptRange> kept_ranges() const { return kept_ranges_; }  // one per chunk
  [[nodiscard]] const GroupSet& groups(std::int32_t ratio) const { return groups_[static_cast<std::size_t>(ratio)]; }
  [[nodiscard]] const std::int32_t* engram_rows(std::size_t index) const { return engram_rows_[index]; }  // [rows, columns]
  [[nodiscard]] std::span<const std::int32_t> host_logit_rows() const { return logit_rows_; }             // rows of kept()
  [[nodiscard]] const std::int32_t* logit_rows() const { return device_logit_rows_; }

 private:
  StepTables(const Config& config, const EngramHash& hash) : config_(&config), hash_(&hash) {}

  std::int32_t* take(std::size_t count);
  const std::int32_t* on_device(const std::int32_t* host) const { return device_ + (host - host_.data()); }
  void begin(std::span<const Chunk> chunks);
  RowSet build_rows(std::span<const Chunk> chunks, RowKind kind);
  const std::uint8_t* build_image_flags(std::span<const Chunk> chunks, bool is_kept);
  void build_groups(std::span<const Chunk> chunks, std::int32_t ratio);
  void build_engram(std::span<const Chunk> chunks);
  void finish(Stream& stream);

  const Config* config_;
  const EngramHash* hash_;
  std::int32_t max_blocks_ = 0;
  std::int32_t table_blocks_ = 0;  // columns of this step's block tables
  std::span<std::int32_t> host_;  // copies of it go on while the host does
  std::size_t used_ = 0;
  std::int32_t* device_ = nullptr;
  std::vector<Buffer> buffers_;

  const std::int32_t* tokens_ = nullptr;
  RowSet all_;
  RowSet kept_;
  bool drops_rows_ = false;
  bool is_draft_ = false;
  bool has_images_ = false;
  std::vector<KeptRange> kept_ranges_;
  std::array<GroupSet, 3> groups_;
  std::vector<const std::int32_t*> engram_rows_;
  std::vector<std::int32_t> classes_;
  std::vector<std::int32_t> logit_rows_;
  const std::int32_t* device_logit_rows_ = nullptr;
};

}  // namespace deepinfer::model
