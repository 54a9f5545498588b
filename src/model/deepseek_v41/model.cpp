#include "model/deepseek_v41/model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/deepseek_v41/model_state.h"

namespace deepinfer::model {
namespace {

constexpr std::int32_t kMaxRecordedRows = 512;

using Pieces = std::vector<std::span<std::byte>>;

std::size_t size_of(const Pieces& pieces) {
  std::size_t sum = 0;
  for (const auto piece : pieces) {
    sum += piece.size();
  }
  return sum;
}

void copy(Stream& stream, const Pieces& from, const Pieces& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    stream.copy(to[i].data(), from[i].data(), from[i].size());
  }
}

bool read(Stream& stream, const Pieces& pieces, std::span<std::byte> to) {
  check(to.size() == size_of(pieces), "the host has room for the bytes of the device");
  for (const auto piece : pieces) {
    stream.copy(to.data(), piece.data(), piece.size());
    to = to.subspan(piece.size());
  }
  stream.synchronize();
  return stream.fault().empty();
}

void write(Stream& stream, const Pieces& pieces, std::span<const std::byte> from) {
  check(from.size() == size_of(pieces), "the bytes of the host are those of a block or state");
  for (const auto piece : pieces) {
    stream.copy(piece.data(), from.data(), piece.size());
    from = from.subspan(piece.size());
  }
  stream.synchronize();
}

}  // namespace

Result<std::unique_ptr<DeepseekV41>> DeepseekV41::create(Device& device, std::shared_ptr<const weights::Checkpoint> checkpoint,
                                                         const Config& config, std::vector<std::int32_t> engram_class, CacheSizes sizes,
                                                         EngramTables engram_tables) {
  if (!config.use_fp4_sparse_kv) {
    return fail(
        ErrorKind::unsupported,
        "use_fp4_sparse_kv is false in config.json: compressed rows in MXFP8 are not supported; use a checkpoint that was made for FP4 "
        "rows (the key absent or true)");
  }
  if (sizes.max_drafts > 0 && (!config.has_drafter() || config.dspark_target_layer_ids.front() < config.split_layer())) {
    return fail(ErrorKind::unsupported, config.has_drafter() ? "dspark_target_layer_ids in config.json has layers before the split layer; this model "
                                                              "cannot draft: switch speculation off"
                                                            : "the model has no drafter (num_nextn_predict_layers is 0): switch speculation off");
  }
  Result<BoundModel> bound = bind_weights(device, std::move(checkpoint), config, engram_tables);
  if (!bound) {
    return std::unexpected(std::move(bound.error()));
  }
  Result<Caches> caches = make_caches(device, config, sizes);
  if (!caches) {
    return std::unexpected(std::move(caches.error()));
  }
  Result<Workspace> workspace = make_workspace(device, config, sizes);
  if (!workspace) {
    return std::unexpected(std::move(workspace.error()));
  }
  Result<TokenDraws> draws = TokenDraws::create(device, sizes.max_logit_rows, config.vocab_size);
  if (!draws) {
    return std::unexpected(std::move(draws.error()));
  }
  auto state = std::make_unique<State>(State{.device = device,
                                             .config = config,
                                             .sizes = sizes,
                                             .bound = std::move(*bound),
                                             .hash = EngramHash(config, std::move(engram_class)),
                                             .caches = std::move(*caches),
                                             .workspace = std::move(*workspace),
                                             .stream = device.make_stream(),
                                             .fetches = device.make_stream(),
                                             .mixes = device.make_stream(),
                                             .beside = device.make_stream(),
                                             .tables = std::nullopt,
                                             .vision = std::nullopt,
                                             .recorded = {},
                                             .draws = std::move(*draws),
                                             .has_drawn = false,
                                             .hook = {},
                                             .drafting = {}});
  Result<StepTables> tables = StepTables::create(device, state->config, sizes, state->hash);
  if (!tables) {
    return std::unexpected(std::move(tables.error()));
  }
  state->tables.emplace(std::move(*tables));
  if (config.vision) {
    Result<VisionTower> vision = VisionTower::create(device, config);
    if (!vision) {
      return std::unexpected(std::move(vision.error()));
    }
    state->vision.emplace(std::move(*vision));
  }
  if (!device.info().reads_host_memory) {
    if (auto warm = state->warm_up(); !warm) {
      return std::unexpected(std::move(warm.error()));
    }
  }
  return std::unique_ptr<DeepseekV41>(new DeepseekV41(std::move(state)));
}

DeepseekV41::DeepseekV41(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeepseekV41::~DeepseekV41() = default;

namespace {

/// Lays the embedding rows of images where the forward expects those of its own rows.
void upload_images(std::span<const Chunk> chunks, std::int32_t hidden, Workspace& workspace, Stream& stream) {
  std::size_t chunk_row = 0;
  for (const Chunk& chunk : chunks) {
    for (const ImageSpan& span : chunk.images) {
      if (span.first_position >= chunk.first_position) {
        const std::size_t row = chunk_row + static_cast<std::size_t>(span.first_position - chunk.first_position);
        const auto width = static_cast<std::size_t>(hidden);
        stream.copy(workspace.image_rows + row * width, span.rows, static_cast<std::size_t>(span.num_tokens) * width * sizeof(bf16));
      }
    }
    chunk_row += chunk.tokens.size();
  }
}

}  // namespace

void DeepseekV41::launch(std::span<const Chunk> chunks) {
  State& s = *state_;
  s.tables->build(chunks, *s.stream);
  if (s.tables->has_images()) {
    check(s.vision.has_value(), "only a model with a vision tower gets images");
    upload_images(chunks, s.config.hidden_size, s.workspace, *s.stream);
  }
  check(s.tables->host_logit_rows().size() <= static_cast<std::size_t>(s.sizes.max_logit_rows),
        "a step wants no more logits than the model has room for");
  const auto issue = [&s] { s.pass().run(); };
  const StepShape shape = s.tables->shape();
  // Long steps gain nothing; rows that stay behind and hooks make copies that depend on more than the shape, and images have tables of
  // their own.
  if (shape.rows <= kMaxRecordedRows && !s.tables->drops_rows() && !s.tables->has_images() && !s.hook) {
    s.recorded.run(shape, *s.stream, issue);
  } else {
    issue();
  }
  s.has_drawn = false;
}

void DeepseekV41::draw(std::span<const RowDraw> rows) {
  State& s = *state_;
  check(rows.size() == s.tables->host_logit_rows().size(), "something is wanted of every row of logits");
  s.draws.queue(rows, s.workspace.logits, s.device.ops(), *s.stream);
  s.has_drawn = true;
}

StepRows DeepseekV41::wait() {
  State& s = *state_;
  if (!s.has_drawn) {
    s.draws.queue_logits(static_cast<std::int32_t>(s.tables->host_logit_rows().size()), s.workspace.logits, *s.stream);
  }
  s.stream->synchronize();
  return s.draws.rows();
}

std::string_view DeepseekV41::fault() const { return state_->stream->fault(); }

std::span<const float> DeepseekV41::forward(std::span<const Chunk> chunks) {
  launch(chunks);
  return wait().logits;
}

std::vector<bf16> DeepseekV41::encode_image(const ImagePixels& image) {
  State& s = *state_;
  check(s.vision.has_value(), "only a model with a vision tower gets images");
  return s.vision->encode(s.bound.weights.vision, image, *s.stream);
}

void DeepseekV41::begin_image(const ImagePixels& image) {
  State& s = *state_;
  check(s.vision.has_value(), "only a model with a vision tower gets images");
  s.vision->begin(s.bound.weights.vision, image, *s.stream);
}

std::optional<std::vector<bf16>> DeepseekV41::advance_image() {
  State& s = *state_;
  check(s.vision.has_value(), "only a model with a vision tower gets images");
  return s.vision->advance(s.bound.weights.vision, *s.stream);
}

void DeepseekV41::copy_state(SlotId from, SlotId to) {
  const CacheSizes& sizes = state_->sizes;
  check(from.value > 0 && from.value < sizes.num_slots && to.value > 0 && to.value < sizes.num_slots && from != to,
        "a state is copied between two slots of requests");
  copy(*state_->stream, state_pieces(state_->caches, from), state_pieces(state_->caches, to));
}

void DeepseekV41::copy_block(BlockId from, BlockId to) {
  const CacheSizes& sizes = state_->sizes;
  check(from.value > 0 && from.value < sizes.num_blocks && to.value > 0 && to.value < sizes.num_blocks && from != to,
        "a block is copied between two blocks of requests");
  copy(*state_->stream, block_pieces(state_->caches, from), block_pieces(state_->caches, to));
}

std::size_t DeepseekV41::block_bytes() const { return size_of(block_pieces(state_->caches, {})); }
std::size_t DeepseekV41::state_bytes() const { return size_of(state_pieces(state_->caches, {})); }
bool DeepseekV41::read_block(BlockId block, std::span<std::byte> to) const {
  return read(*state_->stream, block_pieces(state_->caches, block), to);
}
void DeepseekV41::write_block(BlockId block, std::span<const std::byte> from) {
  write(*state_->stream, block_pieces(state_->caches, block), from);
}
bool DeepseekV41::read_state(SlotId slot, std::span<std::byte> to) const { return read(*state_->stream, state_pieces(state_->caches, slot), to); }
void DeepseekV41::write_state(SlotId slot, std::span<const std::byte> from) {
  write(*state_->stream, state_pieces(state_->caches, slot), from);
}

void DeepseekV41::set_layer_hook(LayerHook hook) { state_->hook = std::move(hook); }
std::int32_t DeepseekV41::num_previous_tokens() const { return state_->hash.lookback(); }
const Config& DeepseekV41::config() const { return state_->config; }
const Caches& DeepseekV41::caches() const { return state_->caches; }
std::vector<CacheGroup> DeepseekV41::cache_groups() const { return state_->caches.groups; }

}  // namespace deepinfer::model
