// Cases of the residual streams and of Engram.
#include <algorithm>

#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

std::string text_of(StreamShape s) { return std::to_string(s.streams) + "x" + std::to_string(s.hidden); }

std::vector<std::int32_t> one_row() { return {0}; }

double rows_of(std::span<const std::int32_t> rows) { return static_cast<double>(rows.size()); }

std::vector<std::uint8_t> image_flags(std::span<const std::int32_t> rows) {
  std::vector<std::uint8_t> out;
  for (const std::int32_t row : rows) {
    out.push_back(row % kPoisoned % 3 == 1 ? 1 : 0);
  }
  return out;
}

}  // namespace

OpCase embed_case(StreamShape shape) {
  OpCase out{.op = "embed", .shape = text_of(shape), .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    constexpr std::int32_t kVocabulary = 97;
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.streams * shape.hidden);
    std::vector<std::uint8_t> image;
    for (const std::int32_t row : rows) {
      image.push_back(row % kPoisoned % 4 == 1 ? 1 : 0);
    }
    const EmbedParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                        .streams = shape.streams,
                        .hidden = shape.hidden,
                        .token = memory->put(random_integers(1, rows, 1, 0, kVocabulary - 1)),
                        .table = memory->put(random_bf16(2, first_rows(kVocabulary), shape.hidden)),
                        .is_image = memory->put(image),
                        .image_rows = memory->put(random_bf16(3, rows, shape.hidden)),
                        .h = memory->room<bf16>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.embed(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("h", memory->read(p.h, count), p.num_rows, Closeness::exact)}; },
                      .bytes = rows_of(rows) * 2 * shape.hidden * (1 + shape.streams)};
  };
  return out;
}

OpCase mix_case(StreamShape shape) {
  const std::int32_t k = shape.streams * shape.hidden;
  const std::int32_t n = (2 + shape.streams) * shape.streams;
  OpCase out{.op = "mix", .shape = text_of(shape), .sum_length = k, .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t streams = rows.size() * static_cast<std::size_t>(shape.streams);
    const MixParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                      .streams = shape.streams,
                      .hidden = shape.hidden,
                      .h = memory->put(random_bf16(1, rows, k, 2.0F)),
                      .fn = memory->put(random_floats(2, first_rows(n), k, 0.05F)),
                      .base = memory->put(random_floats(3, one_row(), n)),
                      .scale = memory->put(std::vector<float>{0.7F, 1.1F, 0.9F}),
                      .sinkhorn_iterations = 20,
                      .mix_eps = 1e-6F,
                      .norm_eps = 1e-20F,
                      .pre = memory->room<float>(streams),
                      .post = memory->room<float>(streams),
                      .comb = memory->room<float>(streams * static_cast<std::size_t>(shape.streams))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.mix(stream, p); },
                      .outputs =
                          [=] {
                            return std::vector{float_output("pre", memory->read(p.pre, streams), p.num_rows),
                                               float_output("post", memory->read(p.post, streams), p.num_rows),
                                               float_output("comb", memory->read(p.comb, streams * p.streams), p.num_rows)};
                          },
                      .bytes = 4.0 * n * k + rows_of(rows) * 2 * k,
                      .flops = rows_of(rows) * 2.0 * n * k};
  };
  return out;
}

OpCase collapse_norm_case(StreamShape shape) {
  OpCase out{.op = "collapse_norm", .shape = text_of(shape), .sum_length = shape.hidden, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.hidden);
    const CollapseNormParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                               .streams = shape.streams,
                               .hidden = shape.hidden,
                               .h = memory->put(random_bf16(1, rows, shape.streams * shape.hidden)),
                               .pre = memory->put(random_floats(2, rows, shape.streams)),
                               .weight = memory->put(random_bf16(3, one_row(), shape.hidden)),
                               .norm_eps = 1e-20F,
                               .x = memory->room<bf16>(count),
                               .y = memory->room<bf16>(count),
                               .q8 = {memory->room<std::uint8_t>(count), memory->room<std::uint8_t>(count / kQ8Group)}};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.collapse_norm(stream, p); },
                      .outputs =
                          [=] {
                            const std::vector<bf16> y = memory->read(p.y, count);
                            return std::vector{bf16_output("x", memory->read(p.x, count), p.num_rows), bf16_output("y", y, p.num_rows),
                                               q8_consistency(*memory, p.q8, y, p.num_rows)};
                          },
                      .bytes = rows_of(rows) * shape.hidden * (2.0 * shape.streams + 5)};
  };
  return out;
}

OpCase expand_case(StreamShape shape) {
  OpCase out{.op = "expand", .shape = text_of(shape), .sum_length = shape.streams + 1, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.streams * shape.hidden);
    std::vector<float> comb = random_floats(4, rows, shape.streams * shape.streams, 0.5F);
    const ExpandParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                         .streams = shape.streams,
                         .hidden = shape.hidden,
                         .y = memory->put(random_bf16(1, rows, shape.hidden)),
                         .post = memory->put(random_floats(2, rows, shape.streams)),
                         .comb = memory->put(comb),
                         .h = memory->put(random_bf16(3, rows, shape.streams * shape.hidden))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.expand(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("h", memory->read(p.h, count), p.num_rows)}; },
                      .bytes = rows_of(rows) * shape.hidden * (4.0 * shape.streams + 2),
                      .flops = rows_of(rows) * 2.0 * shape.streams * (shape.streams + 1) * shape.hidden};
  };
  return out;
}

OpCase mean_streams_case(StreamShape shape) {
  OpCase out{.op = "mean_streams", .shape = text_of(shape), .sum_length = shape.streams, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(2 * shape.hidden);
    const MeanStreamsParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                              .streams = shape.streams,
                              .hidden = shape.hidden,
                              .h = memory->put(random_bf16(1, rows, shape.streams * shape.hidden)),
                              .y = memory->put(std::vector<bf16>(count)),
                              .y_stride = 2 * shape.hidden};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.mean_streams(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("y", memory->read(p.y, count), p.num_rows)}; },
                      .bytes = rows_of(rows) * 2.0 * shape.hidden * (shape.streams + 1)};
  };
  return out;
}

OpCase engram_gate_case(StreamShape shape) {
  OpCase out{.op = "engram_gate", .shape = text_of(shape), .sum_length = shape.hidden, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t width = shape.streams * shape.hidden;
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const EngramGateParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                             .streams = shape.streams,
                             .hidden = shape.hidden,
                             .kv = memory->put(random_bf16(1, rows, width + shape.hidden)),
                             .q_weight = memory->put(random_bf16(2, one_row(), width)),
                             .k_weight = memory->put(random_bf16(3, one_row(), width)),
                             .is_image = memory->put(image_flags(rows)),
                             .norm_eps = 1e-20F,
                             .h = memory->put(random_bf16(4, rows, width))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.engram_gate(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("h", memory->read(p.h, count), p.num_rows)}; },
                      .bytes = rows_of(rows) * 2.0 * (3 * width + shape.hidden),
                      .flops = rows_of(rows) * 10.0 * width};
  };
  return out;
}

OpCase engram_gather_case(EngramShape shape) {
  OpCase out{.op = "engram_gather", .shape = std::to_string(shape.columns) + "x" + std::to_string(shape.row_dim), .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    constexpr std::int32_t kTableRows = 211;
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.columns * shape.row_dim);
    const Q8Rows table = put_q8(*memory, 1, first_rows(kTableRows), shape.row_dim);
    const EngramGatherParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                               .columns = shape.columns,
                               .row_dim = shape.row_dim,
                               .row_id = memory->put(random_integers(2, rows, shape.columns, -1, kTableRows - 1)),
                               .codes = table.codes,
                               .scales = table.scales,
                               .e = {memory->room<std::uint8_t>(count), memory->room<std::uint8_t>(count / kQ8Group)}};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.engram_gather(stream, p); },
                      .outputs =
                          [=] {
                            return std::vector{exact_output("codes", memory->read(p.e.codes, count), p.num_rows),
                                               exact_output("scales", memory->read(p.e.scales, count / kQ8Group), p.num_rows)};
                          },
                      .bytes = rows_of(rows) * 2.0 * shape.columns * shape.row_dim};
  };
  return out;
}

}  // namespace deepinfer::test
