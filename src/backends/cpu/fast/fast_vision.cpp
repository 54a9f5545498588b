// The vision operations in tasks (docs/spec/model.md section 6). Not here: arithmetic (vision_kernels.cpp).
#include "backends/cpu/fast/fast_tasks.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {

void FastOps::rotate_halves(Stream&, const RotateHalvesParams& p) {
  for_rows(p.num_rows, {std::int64_t{4} * p.heads * p.head_dim}, [&](Range rows, Scratch&) { kernels_.vision.rotate_halves(p, rows); });
}

void FastOps::attend_all(Stream&, const AttendAllParams& p) {
  if (p.num_rows <= 0) {
    return;
  }
  // A few queries more than threads can share: smaller blocks keep every thread busy but decode the keys more often.
  const std::int32_t balanced = divide_up(std::int64_t{p.num_rows} * p.heads, pool_.num_threads() * kTasksPerThread);
  const std::int32_t step = std::clamp(divide_up(balanced, kKeyTile) * kKeyTile, kKeyTile, kQueryBlock);
  const std::int32_t blocks = divide_up(p.num_rows, step);
  for_tasks(blocks * p.heads, [&](std::int32_t task, Scratch& scratch) {
    kernels_.vision.attend_all(p, piece(task % blocks, step, p.num_rows), task / blocks, scratch);
  });
}

void FastOps::add(Stream&, const AddParams& p) {
  for_rows(p.num_rows, {p.width}, [&](Range rows, Scratch&) { kernels_.vision.add(p, rows); });
}

void FastOps::silu_product(Stream&, const SiluProductParams& p) {
  for_rows(p.num_rows, {std::int64_t{16} * p.width}, [&](Range rows, Scratch&) { kernels_.vision.silu_product(p, rows); });
}

void FastOps::gelu(Stream&, const GeluParams& p) {
  constexpr std::int64_t kCostOfErf = 200;  // in double precision; once per image token, beside thousands of multiplications each
  for_rows(p.num_rows, {kCostOfErf * p.width}, [&](Range rows, Scratch&) {
    for (std::int64_t i = std::int64_t{rows.begin} * p.width; i < std::int64_t{rows.end} * p.width; ++i) {
      p.x[i] = gelu_value(p.x[i]);
    }
  });
}

void FastOps::gather_cells(Stream&, const GatherCellsParams& p) {
  for_rows(p.num_rows, {std::int64_t{4} * p.width * p.side * p.side}, [&](Range rows, Scratch&) {
    for (std::int64_t cell = rows.begin; cell < rows.end; ++cell) {
      gather_cell(p, cell);
    }
  });
}

}  // namespace deepinfer::cpu
