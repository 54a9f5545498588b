// The vision tower and the aligner (docs/spec/model.md section 6): pixels of one image to the embedding rows of its span. An image is
// encoded by itself, so its rows do not depend on company. Not here: decoding and resizing (recipe), where rows go (forward.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "model/deepseek_v41/binding.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::model {

/// Positions that an image of this size, in pixels, takes in a prompt: START, rows of IMAGE with a NEWLINE each, END.
[[nodiscard]] std::int32_t image_tokens(const VisionConfig& config, std::int32_t width, std::int32_t height);

/// Patches of pixels as the tower takes them: [patches, channel, row, column], patches row-major, values ((x / 255) - 0.5) / 0.5.
[[nodiscard]] std::vector<bf16> image_patches(const VisionConfig& config, const ImagePixels& image);

/// Device memory of the tower's activations; 0 for a model without vision.
[[nodiscard]] std::size_t vision_bytes(const Config& config);

class VisionTower {
 public:
  /// Allocates activations for the largest image. Errors: exhausted when the device has no room.
  static Result<VisionTower> create(Device& device, const Config& config);

  /// Starts with an image of at most max_image_tokens; one that was not finished is given up. The pixels are read during the call only.
  void begin(const VisionWeights& weights, const ImagePixels& image, Stream& stream);
  /// A piece of the work, all of it for a small image: at least one block over all patches. The rows of the span in the host's memory,
  /// [image_tokens(image), D], with the last piece.
  [[nodiscard]] std::optional<std::vector<bf16>> advance(const VisionWeights& weights, Stream& stream);
  /// begin() and advance() to the end.
  [[nodiscard]] std::vector<bf16> encode(const VisionWeights& weights, const ImagePixels& image, Stream& stream);

  /// The output of the tower of the last image, before the aligner, for examination: [patches, W].
  [[nodiscard]] const bf16* features() const { return normed_; }

 private:
  /// Patches and cells (groups of downsample_ratio^2 patches) of one image.
  struct Grid {
    std::int32_t rows = 0, columns = 0;
    std::int32_t cell_rows = 0, cell_columns = 0;
    [[nodiscard]] std::int32_t num_patches() const { return rows * columns; }
    [[nodiscard]] std::int32_t num_cells() const { return cell_rows * cell_columns; }
  };
  struct Affine {
    std::int32_t num_rows = 0, n = 0, k = 0;
  };

  VisionTower(Device& device, const Config& config) : ops_(&device.ops()), vision_(*config.vision), hidden_(config.hidden_size) {}

  void upload_angles(Stream& stream);
  void block(const VisionBlockWeights& weights, std::int32_t num_patches, Stream& stream);
  void attention(const VisionBlockWeights& weights, std::int32_t num_patches, Stream& stream);
  void mlp(const VisionBlockWeights& weights, std::int32_t num_patches, Stream& stream);
  void align(const VisionWeights& weights, Stream& stream);
  [[nodiscard]] std::vector<bf16> read_span(const VisionWeights& weights, Stream& stream) const;
  void linear(const Affine& shape, const AffineWeights& weights, const bf16* x, bf16* y, Stream& stream);
  void norm(std::int32_t num_patches, const bf16* weight, Stream& stream);

  Ops* ops_;
  VisionConfig vision_;
  std::int32_t hidden_ = 0;
  Grid grid_;                                 // of the image that was begun
  std::optional<std::size_t> next_block_ = {};  // of that image; absent when there is none

  // P patches, C cells of the largest image; W the tower's width, I its inner width, D the language model's.
  bf16* patches_ = nullptr;   // [P, 3 patch_size^2]
  bf16* x_ = nullptr;         // [P, W] residual
  bf16* normed_ = nullptr;    // [P, W] sub-layer input, then attention or MLP output
  bf16* wide_ = nullptr;      // [P, 3 W] queries, keys, values; then the output projection; at the end the cells [C, W ratio^2]
  bf16* gate_up_ = nullptr;   // [kMlpRows, 2 I]
  bf16* act_ = nullptr;       // [kMlpRows, I]
  float* cos_ = nullptr;      // [P, head_dim / 2]
  float* sin_ = nullptr;      // [P, head_dim / 2]
  bf16* aligned_ = nullptr;   // [C, D] inside the aligner
  bf16* rows_ = nullptr;      // [C, D] IMAGE rows
  std::vector<Buffer> buffers_;
};

}  // namespace deepinfer::model
