// Which tensors a model has (docs/spec/model.md section 8), and whether a checkpoint holds exactly these.
// Not here: the container format (weights/checkpoint.h), values (weights/value_check.h), device pointers (binding.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/deepseek_v41/config.h"
#include "weights/checkpoint.h"
#include "weights/problems.h"
#include "weights/tensor_description.h"

namespace deepinfer::model {

/// The parts of the inventory table at the end of section 8.
enum class WeightPart : std::uint8_t {
  routed_experts,
  backbone,  ///< layers without routed experts and Engram
  embedding_and_head,
  engram_tables,
  engram_projections,
  drafter_experts,
  drafter_rest,
  vision,
};
inline constexpr std::size_t kNumWeightParts = 8;
[[nodiscard]] std::string_view name_of(WeightPart part);

struct ExpectedTensor {
  weights::TensorDescription tensor;  ///< official name without "model."
  WeightPart part = WeightPart::backbone;
  bool is_bf16_product = false;  ///< a bf16 weight that a device may place (Ops::place_bf16)
};

/// All tensors of the model in the order of the table: top level, layer by layer, drafter, vision. A scale follows its weight.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const Config& config);

struct PartSize {
  std::size_t num_tensors = 0;
  std::size_t bytes = 0;
  std::size_t placed_bytes = 0;  ///< of these: weights that products take (Ops::place_weight and place_bf16), scales included
};

/// Sizes by part, indexed by WeightPart.
struct InventorySizes {
  std::array<PartSize, kNumWeightParts> parts;

  [[nodiscard]] const PartSize& operator[](WeightPart part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] PartSize total() const;
};

[[nodiscard]] InventorySizes inventory_sizes(const std::vector<ExpectedTensor>& tensors);

struct CheckpointFindings {
  weights::Problems problems;         ///< any of them forbids loading
  std::vector<std::string> warnings;  ///< unknown tensors: one sentence for all
};

/// Compares a checkpoint with the inventory: missing tensors and scales, other dtypes or shapes, hyper-connection norms that were not
/// folded into fn; unknown tensors are one warning. Reads no payload.
[[nodiscard]] CheckpointFindings validate_checkpoint(const Config& config, const weights::Checkpoint& checkpoint);

}  // namespace deepinfer::model
