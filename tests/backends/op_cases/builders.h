// Builders of contract cases: one function per operation, shapes as plain structs. The table (table.cpp) and the benchmark choose shapes.
#pragma once

#include "backends/op_cases/op_case.h"

namespace deepinfer::test {

struct StreamShape {
  std::int32_t streams = 4, hidden = 0;
};
[[nodiscard]] OpCase embed_case(StreamShape shape);
[[nodiscard]] OpCase mix_case(StreamShape shape);
[[nodiscard]] OpCase collapse_norm_case(StreamShape shape);
[[nodiscard]] OpCase expand_case(StreamShape shape);
[[nodiscard]] OpCase mean_streams_case(StreamShape shape);
[[nodiscard]] OpCase engram_gate_case(StreamShape shape);

struct EngramShape {
  std::int32_t columns = 0, row_dim = 0;
};
[[nodiscard]] OpCase engram_gather_case(EngramShape shape);

[[nodiscard]] OpCase rms_norm_case(std::int32_t width, std::int32_t stride);
[[nodiscard]] OpCase quantise_case(std::int32_t width);
[[nodiscard]] OpCase rope_table_case(std::int32_t half_dim);

struct HeadShape {
  std::int32_t heads = 1, head_dim = 0, rope_dim = 0;
};
[[nodiscard]] OpCase rotate_case(HeadShape shape);
[[nodiscard]] OpCase window_rows_case(HeadShape shape);
[[nodiscard]] OpCase store_index_keys_case(HeadShape shape);
[[nodiscard]] OpCase store_compressed_case(HeadShape shape);
[[nodiscard]] OpCase store_ring_case(HeadShape shape);
[[nodiscard]] OpCase compress_pairs_case(HeadShape shape);

struct LinearShape {
  WeightFormat format = WeightFormat::fp8;
  std::int32_t groups = 1, n = 0, k = 0;
};
[[nodiscard]] OpCase linear_q8_case(LinearShape shape);

enum class LinearResult : std::uint8_t { f32, bf16, f32_by_index, bf16_with_bias, f32_from_rows };
[[nodiscard]] OpCase linear_bf16_case(std::int32_t n, std::int32_t k, LinearResult result);
[[nodiscard]] OpCase add_rows_case(std::int32_t width);

struct AttendShape {
  HeadShape head;
  std::int32_t window = 0, top_k = 0, ratio = 0;  ///< ratio 0: no compressed rows
  std::int32_t first_position = 0;                ///< of row 0
  bool sees_block = false;                        ///< drafter: every row sees its whole chunk
};
[[nodiscard]] OpCase attend_case(AttendShape shape);

struct IndexShape {
  HeadShape head;  ///< heads and width of the index queries
  std::int32_t ratio = 1, top_k = 0, first_position = 0;
  CandidateMode mode = CandidateMode::none;
  std::int32_t block_size = 0, top_blocks = 0;
  bool has_uneven_scales = false;  ///< keys with codes in one group of 32 only, scales of the other groups far from it
};
[[nodiscard]] OpCase index_select_case(IndexShape shape);

struct MoeShape {
  std::int32_t hidden = 0, intermediate = 0, num_experts = 0, top_k = 0;
  float limit = 10.0F;
};
[[nodiscard]] OpCase route_case(MoeShape shape);
[[nodiscard]] OpCase moe_case(MoeShape shape);

[[nodiscard]] OpCase draw_tokens_case(std::int32_t vocab);

/// `stride` elements from row to row; rope_dim of the shape is not used here.
[[nodiscard]] OpCase rotate_halves_case(HeadShape shape, std::int32_t stride);
[[nodiscard]] OpCase attend_all_case(HeadShape shape, std::int32_t num_keys);
[[nodiscard]] OpCase add_case(std::int32_t width);
[[nodiscard]] OpCase silu_product_case(std::int32_t width);
[[nodiscard]] OpCase gelu_case(std::int32_t width);
[[nodiscard]] OpCase gather_cells_case(std::int32_t width, std::int32_t side);

}  // namespace deepinfer::test
