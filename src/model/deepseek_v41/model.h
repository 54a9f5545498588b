// The DeepSeek-V4.1 text model as a function from chunks of tokens to logits, with its packed caches.
// Owns the memory behind block ids and slots. Not here: which request gets which block (kvcache, scheduler), sampling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "ops/device.h"
#include "ops/ops.h"
#include "tensor/formats.h"
#include "weights/checkpoint.h"

namespace deepinfer::model {

struct Caches;

/// How much the model allocates at creation; nothing grows afterwards.
struct CacheSizes {
  std::int32_t num_blocks = 0;              ///< blocks of 128 positions, block 0 (padding) included
  std::int32_t num_slots = 0;               ///< bounded states, slot 0 (padding) included
  std::int32_t max_rows = 0;                ///< rows of one forward
  std::int32_t max_chunks = 0;              ///< requests in one forward
  std::int32_t max_logit_rows = 0;          ///< rows of one forward whose logits are wanted
  std::int32_t max_blocks_per_request = 0;  ///< ceil(longest context / 128)
  std::int32_t max_drafts = 0;              ///< deepest rollback is max_drafts + 1 positions (sizes the rings)
};

/// Where the tables of Engram lie. Their rows are looked up, and the same ones are found wherever they lie.
enum class EngramTables : std::uint8_t {
  in_memory,       ///< of the device, as the other weights
  in_host_memory,  ///< pinned; the device reads rows over its bus, ahead of the layers that need them
  on_disk,         ///< mapped, for a device that reads host memory; the page cache holds what it likes
};

/// What a cache group has one unit of bytes for.
enum class CacheUnit : std::uint8_t { block, slot };

/// Bytes of one cache group, for start-up prints and metrics.
struct CacheGroup {
  std::string name;                ///< "compressed rows", "index keys", "window rings", …
  CacheUnit unit = CacheUnit::block;
  std::size_t bytes_per_unit = 0;  ///< per block or per slot
  std::int32_t num_units = 0;
};

/// Pixels of an image in the size in which it is shown to the model, row-major.
struct ImagePixels {
  std::int32_t width = 0;               ///< a multiple of the patch size
  std::int32_t height = 0;              ///< likewise
  std::span<const std::uint8_t> rgb{};  ///< [height, width, 3]
};

/// Positions of a request that stand for one image, its delimiters included.
struct ImageSpan {
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;
  const bf16* rows = nullptr;  ///< [num_tokens, hidden] of encode_image(), host memory; read where the span lies in the chunk
};

/// Consecutive tokens of one request at positions first_position, first_position + 1, …
struct Chunk {
  SlotId slot;
  std::span<const BlockId> blocks;  ///< covers all positions up to the last token of the chunk
  std::int32_t first_position = 0;
  std::span<const TokenId> tokens;  ///< at least one
  std::span<const TokenId>
      previous;                     ///< the tokens right before, at least min(num_previous_tokens(), first_position) of them, oldest first
  std::int32_t num_logit_rows = 0;  ///< logits are wanted for the last this many rows
  std::int32_t keep_from = 0;       ///< decoder-side replay (10.2): first position of the rectangle; 0: exact
  bool masks_rows = false;          ///< rows before the rectangle pass the decoder half too and see no window (mask); else they leave (compact)
  std::int32_t first_valid = 0;     ///< encoder-side replay (10.3): window rows before this position do not exist
  std::int32_t stored_until = 0;    ///< compressed rows of tokens before this position are cached and not rewritten
  std::span<const ImageSpan> images = {};  ///< that lie in the chunk, wholly, or end where `previous` reaches
};

/// What is wanted of one row of logits: the token behind it, or the logits themselves.
struct RowDraw {
  TokenDraw draw = {};                      ///< `mask` is not looked at
  std::span<const std::uint32_t> mask = {};  ///< [ceil(vocab / 32)] columns that are allowed, as in DrawTokensParams; empty: all
  bool wants_logits = false;
};

/// What a step says about its rows of logits, in their order.
struct StepRows {
  std::span<const float> logits;         ///< [rows that want them, vocab] fp32
  std::span<const std::int32_t> tokens;  ///< [other rows] the token, or kRowNotFinite, kNothingAllowed
};

/// A draft pass whose tokens were drawn on the device. Valid until the next call.
struct DrawnDrafts {
  std::span<const std::int32_t> tokens;  ///< [num_drafts, requests]
  std::span<const float> confidences;    ///< [num_drafts, requests] before division by the temperature and sigmoid
};

/// Where the drafter goes on for one request: behind the last position that the backbone processed.
struct DraftStart {
  SlotId slot;
  std::int32_t position = 0;  ///< of `anchor`, at least 1
  TokenId anchor;             ///< chosen, not processed yet
};

/// Chooses draft number `index` of every request: logits [requests, vocab] fp32 with the Markov term, `tokens` [requests] to be filled.
using PickDrafts = std::move_only_function<void(std::int32_t index, std::span<const float> logits, std::span<TokenId> tokens)>;

/// Output of one layer on the host, for examination: streams [rows, S, D] and the coefficients of the next collapse [rows, S].
struct LayerOutput {
  std::int32_t layer = 0;
  std::span<bf16> streams;
  std::span<float> pre;
};
/// Sees the output of every layer and may replace it. Costs two copies per layer; for tests and `model probe`.
using LayerHook = std::function<void(const LayerOutput&)>;

class DeepseekV41 {
 public:
  /// Binds the weights (checked before by validate_checkpoint) and allocates caches and workspace.
  /// `engram_class` maps every token id to its Engram class (tokenizer::compress_vocabulary).
  /// Errors: unsupported (use_fp4_sparse_kv is false); exhausted when the device or the host has no room, with the arithmetic.
  static Result<std::unique_ptr<DeepseekV41>> create(Device& device, std::shared_ptr<const weights::Checkpoint> checkpoint,
                                                     const Config& config, std::vector<std::int32_t> engram_class, CacheSizes sizes,
                                                     EngramTables engram_tables = EngramTables::in_memory);
  ~DeepseekV41();

  /// Queues one step over many requests on the device. The spans of the chunks are read during the call only.
  void launch(std::span<const Chunk> chunks);
  /// Behind launch(): queues what is wanted of each of the sum of num_logit_rows rows, in chunk order. Spans are read during the call only.
  void draw(std::span<const RowDraw> rows);
  /// Waits for the launched step. Without draw(): the logits of all rows, in chunk order. Valid until the next launch.
  /// A row whose numbers went bad has NaN logits; other rows are not affected.
  [[nodiscard]] StepRows wait();
  /// Behind wait() and draft(): what is wrong with the device (Stream::fault); results mean nothing then. Empty: nothing.
  [[nodiscard]] std::string_view fault() const;
  /// launch() and wait(): logits [sum of num_logit_rows, vocab].
  [[nodiscard]] std::span<const float> forward(std::span<const Chunk> chunks);
  /// One pass of the drafter (section 7), when nothing is launched: `num_drafts` proposals for each request, at most CacheSizes::max_drafts and
  /// at most max_chunks requests. Draft i of a request is for position + 1 + i. Calls `pick` once per draft, in order.
  /// Returns the confidences before division by the temperature and sigmoid, [num_drafts, requests], valid until the next call.
  [[nodiscard]] std::span<const float> draft(std::span<const DraftStart> starts, std::int32_t num_drafts, PickDrafts& pick);
  /// The same with the tokens drawn on the device: `draws` [requests] for the first draft of each, those behind it for the next positions.
  /// Every draft is a column, whatever its row holds.
  [[nodiscard]] DrawnDrafts draft(std::span<const DraftStart> starts, std::int32_t num_drafts, std::span<const TokenDraw> draws);
  /// Embedding rows of the whole span of an image, delimiters included, in the host's memory: [image_tokens(image), hidden].
  /// Takes its turn behind what was launched before. Only models with vision_config; the image has at most max_image_tokens.
  [[nodiscard]] std::vector<bf16> encode_image(const ImagePixels& image);
  /// The same in pieces, between which anything else may be launched: the rows come with the last one. One image at a time.
  void begin_image(const ImagePixels& image);
  [[nodiscard]] std::optional<std::vector<bf16>> advance_image();
  /// Queues a copy of the bounded state (rings and tails, 9.2) from one slot to another, behind what was launched before.
  void copy_state(SlotId from, SlotId to);
  /// The same for a block.
  void copy_block(BlockId from, BlockId to);

  /// Bytes of one block of all groups that grow with the tokens, and of one slot of the others.
  [[nodiscard]] std::size_t block_bytes() const;
  [[nodiscard]] std::size_t state_bytes() const;
  /// Copies a block or a state to host memory and back, behind what was launched before; done on return. Sizes as above. Reads return false
  /// when the device has a fault: the bytes mean nothing.
  [[nodiscard]] bool read_block(BlockId block, std::span<std::byte> to) const;
  void write_block(BlockId block, std::span<const std::byte> from);
  [[nodiscard]] bool read_state(SlotId slot, std::span<std::byte> to) const;
  void write_state(SlotId slot, std::span<const std::byte> from);

  /// An empty hook switches examination off.
  void set_layer_hook(LayerHook hook);

  /// Tokens that a chunk is told from before it: the n-grams of Engram reach back this far.
  [[nodiscard]] std::int32_t num_previous_tokens() const;
  [[nodiscard]] const Config& config() const;
  [[nodiscard]] const Caches& caches() const;
  [[nodiscard]] std::vector<CacheGroup> cache_groups() const;

 private:
  struct State;
  explicit DeepseekV41(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::model
