// Cases of the vision tower's operations.
#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

double rows_of(std::span<const std::int32_t> rows) { return static_cast<double>(rows.size()); }

std::int32_t count_of(std::span<const std::int32_t> rows) { return static_cast<std::int32_t>(rows.size()); }

std::string text_of(HeadShape s) { return std::to_string(s.heads) + "x" + std::to_string(s.head_dim); }

}  // namespace

OpCase rotate_halves_case(HeadShape shape, std::int32_t stride) {
  OpCase out{.op = "rotate_halves", .shape = text_of(shape) + " of " + std::to_string(stride), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    std::vector<std::int32_t> positions;
    for (const std::int32_t row : rows) {
      positions.push_back(row % kPoisoned * 13 % 97);
    }
    const std::size_t count = rows.size() * static_cast<std::size_t>(stride);
    const RopeTable rope = put_rope(*memory, positions, shape.head_dim);
    const RotateHalvesParams p{.num_rows = count_of(rows),
                               .heads = shape.heads,
                               .head_dim = shape.head_dim,
                               .cos = rope.cos,
                               .sin = rope.sin,
                               .x = memory->put(random_bf16(1, rows, stride)),
                               .x_stride = stride};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.rotate_halves(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("x", memory->read(p.x, count), rows.size(), Closeness::exact)}; },
                      .bytes = rows_of(rows) * 4.0 * shape.heads * shape.head_dim};
  };
  return out;
}

OpCase attend_all_case(HeadShape shape, std::int32_t num_keys) {
  OpCase out{.op = "attend_all",
             .shape = text_of(shape) + " keys " + std::to_string(num_keys),
             .sum_length = num_keys + shape.head_dim,
             .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t width = shape.heads * shape.head_dim;
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const bf16* kv = memory->put(random_bf16(2, first_rows(num_keys), 3 * width, 2.0F));
    const AttendAllParams p{.num_rows = count_of(rows),
                            .num_keys = num_keys,
                            .heads = shape.heads,
                            .head_dim = shape.head_dim,
                            .q = memory->put(random_bf16(1, rows, 3 * width, 2.0F)),
                            .q_stride = 3 * width,
                            .k = kv + width,
                            .v = kv + 2 * width,
                            .kv_stride = 3 * width,
                            .o = memory->room<bf16>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.attend_all(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("o", memory->read(p.o, count), rows.size())}; },
                      .bytes = 4.0 * num_keys * width + rows_of(rows) * 4.0 * width,
                      .flops = rows_of(rows) * 4.0 * num_keys * width};
  };
  return out;
}

OpCase add_case(std::int32_t width) {
  OpCase out{.op = "add", .shape = std::to_string(width), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const AddParams p{.num_rows = count_of(rows),
                      .width = width,
                      .y = memory->put(random_bf16(1, rows, width)),
                      .x = memory->put(random_bf16(2, rows, width, 4.0F))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.add(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("x", memory->read(p.x, count), rows.size(), Closeness::exact)}; },
                      .bytes = rows_of(rows) * 6.0 * width};
  };
  return out;
}

OpCase silu_product_case(std::int32_t width) {
  OpCase out{.op = "silu_product", .shape = std::to_string(width), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const SiluProductParams p{.num_rows = count_of(rows),
                              .width = width,
                              .gate_up = memory->put(random_bf16(1, rows, 2 * width, 3.0F)),
                              .y = memory->room<bf16>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.silu_product(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("y", memory->read(p.y, count), rows.size())}; },
                      .bytes = rows_of(rows) * 6.0 * width};
  };
  return out;
}

OpCase gelu_case(std::int32_t width) {
  OpCase out{.op = "gelu", .shape = std::to_string(width), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const GeluParams p{.num_rows = count_of(rows), .width = width, .x = memory->put(random_bf16(1, rows, width, 3.0F))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.gelu(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("x", memory->read(p.x, count), rows.size())}; },
                      .bytes = rows_of(rows) * 4.0 * width};
  };
  return out;
}

OpCase gather_cells_case(std::int32_t width, std::int32_t side) {
  OpCase out{.op = "gather_cells", .shape = std::to_string(width) + " side " + std::to_string(side), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    // A grid one cell wide, one patch short at both ends: row i of the operation is the cell of the patches of rows side * i and on.
    const std::int32_t grid_columns = side - 1;
    const std::int32_t grid_rows = std::max(0, count_of(rows) * side - 1);
    std::vector<std::int32_t> patches;
    for (const std::int32_t row : rows) {
      for (std::int32_t i = 0; i < side * grid_columns; ++i) {
        patches.push_back(row % 1000 * side * grid_columns + i);
      }
    }
    const std::size_t count = rows.size() * static_cast<std::size_t>(width * side * side);
    const GatherCellsParams p{.num_rows = count_of(rows),
                              .grid_rows = grid_rows,
                              .grid_columns = grid_columns,
                              .side = side,
                              .width = width,
                              .x = memory->put(random_bf16(1, patches, width)),
                              .y = memory->room<bf16>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.gather_cells(stream, p); },
                      .outputs =
                          [=] {
                            std::vector<bf16> cells = memory->read(p.y, count);
                            // The last cell lacks a row of patches whichever row it is: compared with the others only.
                            return std::vector{exact_output("y", cells, 0)};
                          },
                      .bytes = rows_of(rows) * 4.0 * width * side * side};
  };
  return out;
}

}  // namespace deepinfer::test
