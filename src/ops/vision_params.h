// Parameters of the vision tower's own operations (docs/spec/model.md section 6); what they share with the text model is in ops.h.
// Device memory, rules and language as there.
#pragma once

#include <cstdint>

#include "tensor/formats.h"

namespace deepinfer {

/// Rotates whole heads in place, element i with element i + head_dim / 2.
struct RotateHalvesParams {
  std::int32_t num_rows = 0, heads = 0, head_dim = 0;
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;  // [rows, head_dim / 2]
  bf16* x = nullptr;           // in and out [rows, heads, head_dim], `x_stride` elements from row to row
  std::int32_t x_stride = 0;   // at least heads * head_dim
};

/// o = softmax(q k / sqrt(head_dim)) v per head: every row sees all keys. Probabilities are not rounded, o is.
struct AttendAllParams {
  std::int32_t num_rows = 0, num_keys = 0, heads = 0, head_dim = 0;
  const bf16* q = nullptr;    // [rows, heads, head_dim], `q_stride` elements from row to row
  std::int32_t q_stride = 0;
  const bf16* k = nullptr;    // [keys, heads, head_dim], `kv_stride` elements from key to key
  const bf16* v = nullptr;    // as k
  std::int32_t kv_stride = 0;
  bf16* o = nullptr;  // out [rows, heads * head_dim]
};

/// x <- bf16(x + y).
struct AddParams {
  std::int32_t num_rows = 0, width = 0;
  const bf16* y = nullptr;  // [rows, width]
  bf16* x = nullptr;        // in and out [rows, width]
};

/// y = bf16(silu(gate) * up).
struct SiluProductParams {
  std::int32_t num_rows = 0, width = 0;
  const bf16* gate_up = nullptr;  // [rows, 2 * width]: gate, then up
  bf16* y = nullptr;              // out [rows, width]
};

/// x <- bf16(x / 2 * (1 + erf(x / sqrt(2)))).
struct GeluParams {
  std::int32_t num_rows = 0, width = 0;
  bf16* x = nullptr;  // in and out [rows, width]
};

/// Cuts a grid of patches into cells of `side` x `side`: cell row c * side^2 + dy * side + dx is channel c of its patch (dy, dx), zero
/// beyond the grid.
struct GatherCellsParams {
  std::int32_t num_rows = 0;  ///< cells: ceil(grid_rows / side) * ceil(grid_columns / side), row-major
  std::int32_t grid_rows = 0, grid_columns = 0, side = 0, width = 0;
  const bf16* x = nullptr;  // [grid_rows * grid_columns, width]
  bf16* y = nullptr;        // out [cells, width * side * side]
};

}  // namespace deepinfer
