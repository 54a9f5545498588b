#include "model/deepseek_v41/vision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "model/deepseek_v41/device_memory.h"

namespace deepinfer::model {
namespace {

constexpr float kNormEps = 1e-6F;        // section 2.3
constexpr std::int32_t kMlpRows = 1024;  // patches that pass the MLP together: its inner rows are the widest
// Rows that pass a block in one piece of work: a small image at once, of the largest a block at a time, so that text waits for little.
constexpr std::int32_t kPieceRows = 4096;

std::int32_t divide_up(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Elements of every buffer for the largest image, in the order of the class.
struct Elements {
  std::size_t patches, x, normed, wide, gate_up, act, angles, aligned, rows;
};

Elements elements_of(const VisionConfig& v, std::int32_t hidden) {
  const std::int64_t patches = v.max_patches();
  const std::int64_t mlp_rows = std::min<std::int64_t>(patches, kMlpRows);
  return {.patches = size(patches * v.patch_values()),
          .x = size(patches * v.hidden_size),
          .normed = size(patches * v.hidden_size),
          .wide = size(3 * patches * v.hidden_size),
          .gate_up = size(2 * mlp_rows * v.intermediate_size),
          .act = size(mlp_rows * v.intermediate_size),
          .angles = size(patches * (v.head_dim() / 2)),
          .aligned = size(std::int64_t{v.max_cells()} * hidden),
          .rows = size(std::int64_t{v.max_cells()} * hidden)};
}

/// bf16 of ((x / 255) - 0.5) / 0.5 for every byte, each operation rounded to fp32.
std::array<bf16, 256> pixel_values() {
  std::array<bf16, 256> out{};
  for (std::size_t x = 0; x < out.size(); ++x) {
    const float unit = static_cast<float>(x) / 255.0F;
    const float centred = unit - 0.5F;
    out[x] = to_bf16(centred / 0.5F);
  }
  return out;
}

}  // namespace

std::int32_t image_tokens(const VisionConfig& config, std::int32_t width, std::int32_t height) {
  const std::int32_t cell = config.patch_size * config.downsample_ratio;
  return divide_up(height, cell) * (divide_up(width, cell) + 1) + 2;
}

std::vector<bf16> image_patches(const VisionConfig& config, const ImagePixels& image) {
  const std::array<bf16, 256> values = pixel_values();
  const auto side = size(config.patch_size);
  const std::size_t columns = size(image.width) / side;
  const std::size_t rows = size(image.height) / side;
  std::vector<bf16> out(rows * columns * size(config.patch_values()));
  bf16* next = out.data();
  for (std::size_t patch = 0; patch < rows * columns; ++patch) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::size_t dy = 0; dy < side; ++dy) {
        const std::size_t pixel = (patch / columns * side + dy) * size(image.width) + patch % columns * side;
        for (std::size_t dx = 0; dx < side; ++dx) {
          *next++ = values[image.rgb[(pixel + dx) * 3 + channel]];
        }
      }
    }
  }
  return out;
}

std::size_t vision_bytes(const Config& config) {
  if (!config.vision) {
    return 0;
  }
  const Elements n = elements_of(*config.vision, config.hidden_size);
  const std::size_t halves = n.patches + n.x + n.normed + n.wide + n.gate_up + n.act + n.aligned + n.rows;
  return halves * sizeof(bf16) + 2 * n.angles * sizeof(float);
}

Result<VisionTower> VisionTower::create(Device& device, const Config& config) {
  VisionTower out(device, config);
  const Elements n = elements_of(out.vision_, out.hidden_);
  DeviceMemory memory(device);
  out.patches_ = memory.take<bf16>(n.patches);
  out.x_ = memory.take<bf16>(n.x);
  out.normed_ = memory.take<bf16>(n.normed);
  out.wide_ = memory.take<bf16>(n.wide);
  out.gate_up_ = memory.take<bf16>(n.gate_up);
  out.act_ = memory.take<bf16>(n.act);
  out.cos_ = memory.take<float>(n.angles);
  out.sin_ = memory.take<float>(n.angles);
  out.aligned_ = memory.take<bf16>(n.aligned);
  out.rows_ = memory.take<bf16>(n.rows);
  Result<std::vector<Buffer>> buffers = std::move(memory).finish("vision tower");
  if (!buffers) {
    return std::unexpected(std::move(buffers.error()));
  }
  out.buffers_ = std::move(*buffers);
  return out;
}

void VisionTower::begin(const VisionWeights& weights, const ImagePixels& image, Stream& stream) {
  const std::int32_t side = vision_.patch_size;
  check(image.width > 0 && image.height > 0 && image.width % side == 0 && image.height % side == 0, "an image is cut into whole patches");
  check(image.rgb.size() == size(std::int64_t{image.width} * image.height * 3), "an image has three values per pixel");
  check(image_tokens(vision_, image.width, image.height) <= vision_.max_image_tokens, "an image has at most max_image_tokens");
  const std::int32_t ratio = vision_.downsample_ratio;
  grid_ = {.rows = image.height / side,
           .columns = image.width / side,
           .cell_rows = divide_up(image.height / side, ratio),
           .cell_columns = divide_up(image.width / side, ratio)};
  next_block_ = 0;
  const std::vector<bf16> patches = image_patches(vision_, image);
  stream.copy(patches_, patches.data(), patches.size() * sizeof(bf16));
  upload_angles(stream);  // returns when `patches` was read, too
  linear({grid_.num_patches(), vision_.hidden_size, vision_.patch_values()}, weights.patch_embed, patches_, x_, stream);
}

std::optional<std::vector<bf16>> VisionTower::advance(const VisionWeights& weights, Stream& stream) {
  check(next_block_.has_value(), "an image was begun");
  for (std::int32_t rows = 0; *next_block_ < weights.blocks.size() && rows < kPieceRows; rows += grid_.num_patches()) {
    block(weights.blocks[(*next_block_)++], grid_.num_patches(), stream);
  }
  if (*next_block_ < weights.blocks.size()) {
    return std::nullopt;
  }
  next_block_.reset();
  norm(grid_.num_patches(), weights.norm, stream);
  align(weights, stream);
  return read_span(weights, stream);
}

std::vector<bf16> VisionTower::encode(const VisionWeights& weights, const ImagePixels& image, Stream& stream) {
  begin(weights, image, stream);
  std::optional<std::vector<bf16>> rows;
  while (!rows) {
    rows = advance(weights, stream);
  }
  return std::move(*rows);
}

/// Angles (row f_0, row f_1, ..., column f_0, column f_1, ...) with f_i = theta^(-2 i / (head_dim / 2)), one line per patch.
void VisionTower::upload_angles(Stream& stream) {
  const std::int32_t quarter = vision_.head_dim() / 4;
  std::vector<float> frequency;
  for (std::int32_t i = 0; i < quarter; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * quarter);
    frequency.push_back(1.0F / static_cast<float>(std::pow(vision_.rope_theta, static_cast<double>(exponent))));
  }
  // Few places, many patches: the functions are evaluated once a place.
  const std::int32_t num_places = std::max(grid_.rows, grid_.columns);
  std::vector<float> cos_of;
  std::vector<float> sin_of;
  for (std::int32_t place = 0; place < num_places; ++place) {
    for (const float f : frequency) {
      const double angle = static_cast<float>(place) * f;
      cos_of.push_back(static_cast<float>(std::cos(angle)));
      sin_of.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<float> cos;
  std::vector<float> sin;
  const auto append = [&](std::int32_t place) {
    const std::ptrdiff_t first = std::ptrdiff_t{place} * quarter;
    cos.insert(cos.end(), cos_of.begin() + first, cos_of.begin() + first + quarter);
    sin.insert(sin.end(), sin_of.begin() + first, sin_of.begin() + first + quarter);
  };
  for (std::int32_t row = 0; row < grid_.rows; ++row) {
    for (std::int32_t column = 0; column < grid_.columns; ++column) {
      append(row);
      append(column);
    }
  }
  stream.copy(cos_, cos.data(), cos.size() * sizeof(float));
  stream.copy(sin_, sin.data(), sin.size() * sizeof(float));
  stream.synchronize();  // the host's copies may go
}

void VisionTower::linear(const Affine& shape, const AffineWeights& weights, const bf16* x, bf16* y, Stream& stream) {
  ops_->linear_bf16(stream, {.num_rows = shape.num_rows,
                             .n = shape.n,
                             .k = shape.k,
                             .x = x,
                             .row_index = nullptr,
                             .weight = weights.weight,
                             .y_f32 = nullptr,
                             .y_bf16 = y,
                             .bias = weights.bias});
}

void VisionTower::norm(std::int32_t num_patches, const bf16* weight, Stream& stream) {
  ops_->rms_norm(stream, {.num_rows = num_patches,
                          .width = vision_.hidden_size,
                          .x = x_,
                          .x_stride = 0,
                          .weight = weight,
                          .norm_eps = kNormEps,
                          .y = normed_,
                          .q8 = {}});
}

void VisionTower::block(const VisionBlockWeights& weights, std::int32_t num_patches, Stream& stream) {
  const std::int32_t width = vision_.hidden_size;
  norm(num_patches, weights.norm1, stream);
  attention(weights, num_patches, stream);
  ops_->add(stream, {.num_rows = num_patches, .width = width, .y = wide_, .x = x_});
  norm(num_patches, weights.norm2, stream);
  mlp(weights, num_patches, stream);
  ops_->add(stream, {.num_rows = num_patches, .width = width, .y = normed_, .x = x_});
}

/// From normed_ to wide_.
void VisionTower::attention(const VisionBlockWeights& weights, std::int32_t num_patches, Stream& stream) {
  const std::int32_t width = vision_.hidden_size;
  const std::int32_t heads = vision_.num_attention_heads;
  linear({num_patches, 3 * width, width}, weights.wqkv, normed_, wide_, stream);
  ops_->rotate_halves(stream, {.num_rows = num_patches,
                               .heads = 2 * heads,  // queries, and keys right behind them
                               .head_dim = vision_.head_dim(),
                               .cos = cos_,
                               .sin = sin_,
                               .x = wide_,
                               .x_stride = 3 * width});
  ops_->attend_all(stream, {.num_rows = num_patches,
                            .num_keys = num_patches,
                            .heads = heads,
                            .head_dim = vision_.head_dim(),
                            .q = wide_,
                            .q_stride = 3 * width,
                            .k = wide_ + width,
                            .v = wide_ + 2 * width,
                            .kv_stride = 3 * width,
                            .o = normed_});
  linear({num_patches, width, width}, weights.wo, normed_, wide_, stream);
}

/// From normed_ to normed_.
void VisionTower::mlp(const VisionBlockWeights& weights, std::int32_t num_patches, Stream& stream) {
  const std::int32_t width = vision_.hidden_size;
  const std::int32_t inner = vision_.intermediate_size;
  for (std::int32_t first = 0; first < num_patches; first += kMlpRows) {
    const std::int32_t count = std::min(kMlpRows, num_patches - first);
    bf16* rows = normed_ + std::int64_t{first} * width;
    linear({count, 2 * inner, width}, {.weight = weights.w1, .bias = nullptr}, rows, gate_up_, stream);
    ops_->silu_product(stream, {.num_rows = count, .width = inner, .gate_up = gate_up_, .y = act_});
    linear({count, width, inner}, {.weight = weights.w2, .bias = nullptr}, act_, rows, stream);
  }
}

void VisionTower::align(const VisionWeights& weights, Stream& stream) {
  const std::int32_t ratio = vision_.downsample_ratio;
  const std::int32_t cells = grid_.num_cells();
  ops_->gather_cells(stream, {.num_rows = cells,
                              .grid_rows = grid_.rows,
                              .grid_columns = grid_.columns,
                              .side = ratio,
                              .width = vision_.hidden_size,
                              .x = normed_,
                              .y = wide_});
  linear({cells, hidden_, vision_.hidden_size * ratio * ratio}, weights.aligner_in, wide_, aligned_, stream);
  ops_->gelu(stream, {.num_rows = cells, .width = hidden_, .x = aligned_});
  linear({cells, hidden_, hidden_}, weights.aligner_out, aligned_, rows_, stream);
}

std::vector<bf16> VisionTower::read_span(const VisionWeights& weights, Stream& stream) const {
  const auto width = size(hidden_);
  const auto columns = size(grid_.cell_columns);
  std::vector<bf16> out((size(grid_.cell_rows) * (columns + 1) + 2) * width);
  bf16* next = out.data();
  const auto append = [&](const bf16* rows, std::size_t count) {
    stream.copy(next, rows, count * width * sizeof(bf16));
    next += count * width;
  };
  append(weights.start, 1);
  for (std::size_t row = 0; row < size(grid_.cell_rows); ++row) {
    append(rows_ + row * columns * width, columns);
    append(weights.newline, 1);
  }
  append(weights.end, 1);
  stream.synchronize();
  return out;
}

}  // namespace deepinfer::model
