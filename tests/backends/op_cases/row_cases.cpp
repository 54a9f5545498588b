// Cases of norms, quantisation, rotations and of the rows that later queries read.
#include <algorithm>

#include "backends/cpu/block_codecs.h"
#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

std::string text_of(HeadShape s) {
  return std::to_string(s.heads) + "x" + std::to_string(s.head_dim) + " rope " + std::to_string(s.rope_dim);
}

std::vector<std::int32_t> one_row() { return {0}; }

double rows_of(std::span<const std::int32_t> rows) { return static_cast<double>(rows.size()); }

/// Positions that jump about but depend on the row id only.
std::vector<std::int32_t> positions_of(std::span<const std::int32_t> rows) {
  std::vector<std::int32_t> out;
  for (const std::int32_t row : rows) {
    out.push_back(row % kPoisoned * 37 % 1009);
  }
  return out;
}

/// Places of stored rows: the row id, every fifth is not stored.
std::vector<std::int32_t> places_of(std::span<const std::int32_t> rows) {
  std::vector<std::int32_t> out;
  for (const std::int32_t row : rows) {
    out.push_back(row % 5 == 4 ? -1 : row);
  }
  return out;
}

constexpr std::int32_t kRowsPerBlock = 64;

std::int32_t blocks_for(std::span<const std::int32_t> rows) { return rows.empty() ? 1 : rows.back() / kRowsPerBlock + 1; }

}  // namespace

OpCase rms_norm_case(std::int32_t width, std::int32_t stride) {
  OpCase out{.op = "rms_norm", .shape = std::to_string(width) + " of " + std::to_string(stride), .sum_length = width, .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    std::vector<bf16> x = random_bf16(1, rows, stride, 3.0F);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (rows[r] % kPoisoned % 7 == 2) {  // an all-zero row stays zero
        std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(r) * stride, stride, bf16{});
      }
    }
    const RmsNormParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                          .width = width,
                          .x = memory->put(x),
                          .x_stride = stride == width ? 0 : stride,
                          .weight = memory->put(random_bf16(2, one_row(), width)),
                          .norm_eps = 1e-20F,
                          .y = memory->room<bf16>(count),
                          .q8 = {memory->room<std::uint8_t>(count), memory->room<std::uint8_t>(count / kQ8Group)}};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.rms_norm(stream, p); },
                      .outputs =
                          [=] {
                            const std::vector<bf16> y = memory->read(p.y, count);
                            return std::vector{bf16_output("y", y, p.num_rows), q8_consistency(*memory, p.q8, y, p.num_rows)};
                          },
                      .bytes = rows_of(rows) * 5.0 * width};
  };
  return out;
}

OpCase quantise_case(std::int32_t width) {
  OpCase out{.op = "quantise", .shape = std::to_string(width), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const QuantiseParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                           .width = width,
                           .x = memory->put(random_bf16(1, rows, width, 5.0F)),
                           .q8 = {memory->room<std::uint8_t>(count), memory->room<std::uint8_t>(count / kQ8Group)}};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.quantise(stream, p); },
                      .outputs =
                          [=] {
                            return std::vector{exact_output("codes", memory->read(p.q8.codes, count), p.num_rows),
                                               exact_output("scales", memory->read(p.q8.scales, count / kQ8Group), p.num_rows)};
                          },
                      .bytes = rows_of(rows) * 3.0 * width};
  };
  return out;
}

OpCase rope_table_case(std::int32_t half_dim) {
  OpCase out{.op = "rope_table", .shape = std::to_string(half_dim), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(half_dim);
    std::vector<float> frequency;
    for (std::int32_t i = 0; i < half_dim; ++i) {
      frequency.push_back(1.0F / static_cast<float>(1 + 3 * i));
    }
    const RopeTableParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                            .half_dim = half_dim,
                            .position = memory->put(random_integers(1, rows, 1, 0, 1048575)),
                            .frequency = memory->put(frequency),
                            .cos = memory->room<float>(count),
                            .sin = memory->room<float>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.rope_table(stream, p); },
                      .outputs =
                          [=] {
                            return std::vector{exact_output("cos", memory->read(p.cos, count), p.num_rows),
                                               exact_output("sin", memory->read(p.sin, count), p.num_rows)};
                          },
                      .bytes = rows_of(rows) * 8.0 * half_dim};
  };
  return out;
}

OpCase rotate_case(HeadShape shape) {
  OpCase out{.op = "rotate", .shape = text_of(shape), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.heads * shape.head_dim);
    const RotateParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                         .heads = shape.heads,
                         .head_dim = shape.head_dim,
                         .rope_dim = shape.rope_dim,
                         .rope = put_rope(*memory, positions_of(rows), shape.rope_dim),
                         .x = memory->put(random_bf16(1, rows, shape.heads * shape.head_dim))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.rotate(stream, p); },
                      .outputs = [=] { return std::vector{bf16_output("x", memory->read(p.x, count), p.num_rows, Closeness::exact)}; },
                      .bytes = rows_of(rows) * 4.0 * shape.heads * shape.rope_dim};
  };
  return out;
}

OpCase window_rows_case(HeadShape shape) {
  OpCase out{.op = "window_rows", .shape = text_of(shape), .sum_length = shape.head_dim, .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t record_bytes = window_record_bytes(shape.head_dim);
    const std::size_t count = rows.size() * static_cast<std::size_t>(record_bytes);
    const WindowRowsParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                             .head_dim = shape.head_dim,
                             .rope_dim = shape.rope_dim,
                             .x = memory->put(random_bf16(1, rows, shape.head_dim)),
                             .weight = memory->put(random_bf16(2, one_row(), shape.head_dim)),
                             .norm_eps = 1e-20F,
                             .rope = put_rope(*memory, positions_of(rows), shape.rope_dim),
                             .own = memory->room<std::uint8_t>(count)};
    const auto outputs = [=] {
      const std::vector<std::uint8_t> records = memory->read(p.own, count);
      std::vector<float> values;
      for (std::int64_t r = 0; r < p.num_rows; ++r) {
        const std::uint8_t* record = records.data() + r * record_bytes;
        for (std::int32_t i = 0; i < shape.head_dim; ++i) {
          values.push_back(cpu::q8_value(record, record + shape.head_dim, i));
        }
      }
      return std::vector{make_output("records", Closeness::after_quantiser, records, p.num_rows, values)};
    };
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.window_rows(stream, p); },
                      .outputs = outputs,
                      .bytes = rows_of(rows) * 3.0 * shape.head_dim};
  };
  return out;
}

OpCase store_index_keys_case(HeadShape shape) {
  OpCase out{.op = "store_index_keys", .shape = text_of(shape), .sum_length = shape.head_dim, .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int64_t block_bytes = std::int64_t{kRowsPerBlock} * index_key_bytes(shape.head_dim);
    const std::size_t store_bytes = static_cast<std::size_t>(block_bytes) * static_cast<std::size_t>(blocks_for(rows));
    const std::vector<std::int32_t> places = places_of(rows);
    const StoreIndexKeysParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                                 .index_dim = shape.head_dim,
                                 .rope_dim = shape.rope_dim,
                                 .rows_per_block = kRowsPerBlock,
                                 .x = memory->put(random_bf16(1, rows, shape.head_dim)),
                                 .weight = memory->put(random_bf16(2, one_row(), shape.head_dim)),
                                 .norm_eps = 1e-20F,
                                 .rope = put_rope(*memory, positions_of(rows), shape.rope_dim),
                                 .row_place = memory->put(places),
                                 .keys = memory->put(std::vector<std::uint8_t>(store_bytes))};
    const auto outputs = [=] {
      const std::vector<std::uint8_t> store = memory->read(p.keys, store_bytes);
      const std::int32_t code_bytes = shape.head_dim / 2;
      const std::int32_t scale_bytes = shape.head_dim / kQ4IndexGroup;
      std::vector<std::uint8_t> records;
      std::vector<float> values;
      for (const std::int32_t place : places) {
        const std::uint8_t* block = store.data() + std::max(place, 0) / kRowsPerBlock * block_bytes;
        const std::int64_t in_block = std::max(place, 0) % kRowsPerBlock;
        const std::uint8_t* codes = block + in_block * code_bytes;
        const std::uint8_t* scales = block + kRowsPerBlock * code_bytes + in_block * scale_bytes;
        for (std::int32_t i = 0; i < shape.head_dim; ++i) {
          values.push_back(place < 0 ? 0.0F : cpu::q4_index_value(codes, scales, i));
        }
        std::vector<std::uint8_t> record(static_cast<std::size_t>(code_bytes + scale_bytes));
        if (place >= 0) {
          std::copy_n(scales, scale_bytes, std::copy_n(codes, code_bytes, record.begin()));
        }
        records.insert(records.end(), record.begin(), record.end());
      }
      return std::vector{make_output("keys", Closeness::after_quantiser, records, places.size(), values)};
    };
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.store_index_keys(stream, p); },
                      .outputs = outputs,
                      .bytes = rows_of(rows) * 2.5 * shape.head_dim};
  };
  return out;
}

OpCase store_compressed_case(HeadShape shape) {
  OpCase out{.op = "store_compressed", .shape = text_of(shape), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t record_bytes = compressed_record_bytes(shape.head_dim);
    const std::vector<std::int32_t> places = places_of(rows);
    const std::size_t store_bytes = static_cast<std::size_t>(blocks_for(rows)) * kRowsPerBlock * static_cast<std::size_t>(record_bytes);
    const StoreCompressedParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                                  .head_dim = shape.head_dim,
                                  .rope_dim = shape.rope_dim,
                                  .x = memory->put(random_bf16(1, rows, shape.head_dim)),
                                  .rope = put_rope(*memory, positions_of(rows), shape.rope_dim),
                                  .row_place = memory->put(places),
                                  .compressed = memory->put(std::vector<std::uint8_t>(store_bytes))};
    const auto outputs = [=] {
      const std::vector<std::uint8_t> store = memory->read(p.compressed, store_bytes);
      std::vector<std::uint8_t> records;
      for (const std::int32_t place : places) {
        std::vector<std::uint8_t> record(static_cast<std::size_t>(record_bytes));
        if (place >= 0) {
          std::copy_n(store.data() + std::int64_t{place} * record_bytes, record_bytes, record.begin());
        }
        records.insert(records.end(), record.begin(), record.end());
      }
      return std::vector{exact_output("records", records, places.size())};
    };
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.store_compressed(stream, p); },
                      .outputs = outputs,
                      .bytes = rows_of(rows) * 2.6 * shape.head_dim};
  };
  return out;
}

}  // namespace deepinfer::test
