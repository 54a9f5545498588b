// Cases of linears, the router and the experts.
#include <algorithm>
#include <set>

#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

std::string text_of(LinearShape s) {
  const std::string format = s.format == WeightFormat::fp8 ? "fp8 " : "fp4 ";
  return format + std::to_string(s.groups) + "x[" + std::to_string(s.n) + "," + std::to_string(s.k) + "]";
}

std::string text_of(MoeShape s) {
  return std::to_string(s.hidden) + "/" + std::to_string(s.intermediate) + " top " + std::to_string(s.top_k) + " of " +
         std::to_string(s.num_experts);
}

std::vector<std::int32_t> one_row() { return {0}; }

double rows_of(std::span<const std::int32_t> rows) { return static_cast<double>(rows.size()); }

ExpertWeights put_expert(OpMemory& memory, std::uint32_t tensor, WeightFormat format, MoeShape shape) {
  return {.w1 = put_weight(memory, tensor, format, shape.intermediate, shape.hidden),
          .w3 = put_weight(memory, tensor + 1, format, shape.intermediate, shape.hidden),
          .w2 = put_weight(memory, tensor + 2, format, shape.hidden, shape.intermediate)};
}

/// top_k different experts per row, ascending.
std::vector<std::int32_t> random_experts(std::span<const std::int32_t> rows, MoeShape shape) {
  std::vector<std::int32_t> out;
  for (const std::int32_t row : rows) {
    RowRandom random = row_random(5, row % kPoisoned);
    std::set<std::int32_t> chosen;
    while (chosen.size() < static_cast<std::size_t>(shape.top_k)) {
      chosen.insert(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(shape.num_experts)));
    }
    out.insert(out.end(), chosen.begin(), chosen.end());
  }
  return out;
}

}  // namespace

OpCase linear_q8_case(LinearShape shape) {
  OpCase out{.op = "linear_q8", .shape = text_of(shape), .sum_length = shape.k, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t columns = shape.groups * shape.n;
    const std::size_t count = rows.size() * static_cast<std::size_t>(columns);
    const LinearQ8Params p{.num_rows = static_cast<std::int32_t>(rows.size()),
                           .n = shape.n,
                           .k = shape.k,
                           .groups = shape.groups,
                           .x = put_q8(*memory, 1, rows, std::int64_t{shape.groups} * shape.k),
                           .weight = put_weight(*memory, 2, shape.format, columns, shape.k),
                           .y = memory->room<bf16>(count)};
    return PreparedOp{
        .memory = memory,
        .run = [p](Ops& ops, Stream& stream) { ops.linear_q8(stream, p); },
        .outputs = [=] { return std::vector{bf16_output("y", memory->read(p.y, count), p.num_rows)}; },
        .bytes = weight_bytes(shape.format, columns, shape.k) + rows_of(rows) * (1.03 * shape.groups * shape.k + 2.0 * columns),
        .flops = rows_of(rows) * 2.0 * columns * shape.k};
  };
  return out;
}

OpCase linear_bf16_case(std::int32_t n, std::int32_t k, LinearResult result) {
  const char* const kNames[] = {" f32", " bf16", " f32 by index", " bf16 with bias", " f32, weight in rows"};
  OpCase out{.op = "linear_bf16",
             .shape = "[" + std::to_string(n) + "," + std::to_string(k) + "]" + kNames[static_cast<int>(result)],
             .sum_length = k,
             .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(n);
    const std::vector<bf16> weight = random_bf16(2, first_rows(n), k);
    LinearBf16Params p{
        .num_rows = static_cast<std::int32_t>(rows.size()),
        .n = n,
        .k = k,
        .weight = result == LinearResult::f32_from_rows ? Bf16Weight{memory->put(weight)} : put_bf16_weight(*memory, weight, n, k)};
    if (result == LinearResult::f32_by_index) {  // x stored in reverse
      std::vector<std::int32_t> stored(rows.rbegin(), rows.rend());
      std::vector<std::int32_t> index = first_rows(p.num_rows);
      std::ranges::reverse(index);
      p.x = memory->put(random_bf16(1, stored, k));
      p.row_index = memory->put(index);
    } else {
      p.x = memory->put(random_bf16(1, rows, k));
    }
    if (result == LinearResult::bf16_with_bias) {
      p.bias = memory->put(random_bf16(3, std::vector<std::int32_t>{0}, n));
    }
    if (result == LinearResult::bf16 || result == LinearResult::bf16_with_bias) {
      p.y_bf16 = memory->room<bf16>(count);
    } else {
      p.y_f32 = memory->room<float>(count);
    }
    const auto outputs = [=] {
      return std::vector{p.y_f32 != nullptr ? float_output("y", memory->read(p.y_f32, count), p.num_rows)
                                            : bf16_output("y", memory->read(p.y_bf16, count), p.num_rows)};
    };
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.linear_bf16(stream, p); },
                      .outputs = outputs,
                      .bytes = 2.0 * n * k + rows_of(rows) * (2.0 * k + 4.0 * n),
                      .flops = rows_of(rows) * 2.0 * n * k};
  };
  return out;
}

OpCase add_rows_case(std::int32_t width) {
  OpCase out{.op = "add_rows", .shape = std::to_string(width), .sum_length = 2, .prepare = {}};
  out.prepare = [width](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(width);
    const AddRowsParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                          .width = width,
                          .x = memory->put(random_floats(1, rows, width, 3.0F)),
                          .y = memory->put(random_floats(2, rows, width, 3.0F))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.add_rows(stream, p); },
                      .outputs = [=] { return std::vector{float_output("y", memory->read(p.y, count), p.num_rows)}; },
                      .bytes = rows_of(rows) * 12.0 * width};
  };
  return out;
}

OpCase route_case(MoeShape shape) {
  OpCase out{.op = "route", .shape = text_of(shape), .sum_length = shape.hidden, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.top_k);
    std::vector<std::uint8_t> image;
    for (const std::int32_t row : rows) {
      image.push_back(row % kPoisoned % 4 == 1 ? 1 : 0);
    }
    const RouteParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                        .hidden = shape.hidden,
                        .num_experts = shape.num_experts,
                        .top_k = shape.top_k,
                        .u = memory->put(random_bf16(1, rows, shape.hidden)),
                        .weight = put_bf16_weight(*memory, random_bf16(2, first_rows(shape.num_experts), shape.hidden, 0.1F),
                                                  shape.num_experts, shape.hidden),
                        .bias = memory->put(random_floats(3, one_row(), shape.num_experts)),
                        .bias_image = memory->put(random_floats(4, one_row(), shape.num_experts)),
                        .is_image = memory->put(image),
                        .routed_scaling = 1.5F,
                        .expert = memory->room<std::int32_t>(count),
                        .expert_weight = memory->room<float>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.route(stream, p); },
                      .outputs =
                          [=] {
                            return std::vector{exact_output("expert", memory->read(p.expert, count), p.num_rows),
                                               float_output("weight", memory->read(p.expert_weight, count), p.num_rows)};
                          },
                      .bytes = 2.0 * shape.num_experts * shape.hidden + rows_of(rows) * 2.0 * shape.hidden,
                      .flops = rows_of(rows) * 2.0 * shape.num_experts * shape.hidden};
  };
  return out;
}

OpCase moe_case(MoeShape shape) {
  OpCase out{.op = "moe", .shape = text_of(shape), .sum_length = shape.hidden, .prepare = {}};
  out.prepare = [shape](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.hidden);
    std::vector<ExpertWeights> experts;
    for (std::int32_t e = 0; e < shape.num_experts; ++e) {
      experts.push_back(put_expert(*memory, 100 + 3 * static_cast<std::uint32_t>(e), WeightFormat::fp4, shape));
    }
    const std::vector<std::int32_t> chosen = random_experts(rows, shape);
    std::vector<float> weight = random_floats(6, rows, shape.top_k);
    std::ranges::for_each(weight, [](float& w) { w = 0.2F + 0.1F * std::abs(w); });
    const MoeParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                      .hidden = shape.hidden,
                      .intermediate = shape.intermediate,
                      .num_experts = shape.num_experts,
                      .top_k = shape.top_k,
                      .x = put_q8(*memory, 1, rows, shape.hidden),
                      .expert = memory->put(chosen),
                      .expert_weight = memory->put(weight),
                      .experts = memory->put(experts),
                      .shared = put_expert(*memory, 10, WeightFormat::fp8, shape),
                      .swiglu_limit = shape.limit,
                      .y = memory->room<bf16>(count)};
    const double expert_elements = 3.0 * shape.hidden * shape.intermediate;
    const auto touched = static_cast<double>(std::set<std::int32_t>(chosen.begin(), chosen.end()).size());
    return PreparedOp{
        .memory = memory,
        .run = [p](Ops& ops, Stream& stream) { ops.moe(stream, p); },
        .outputs = [=] { return std::vector{bf16_output("y", memory->read(p.y, count), p.num_rows, Closeness::after_quantiser)}; },
        .bytes = expert_elements * (touched * 0.53125 + 1.0) + rows_of(rows) * 3.0 * shape.hidden,
        .flops = rows_of(rows) * 2.0 * expert_elements * (shape.top_k + 1)};
  };
  return out;
}

}  // namespace deepinfer::test
