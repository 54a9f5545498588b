#include "backends/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/implementations.h"
#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

double norm(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) {
    sum += static_cast<double>(x) * x;
  }
  return std::sqrt(sum);
}

/// Largest accepted relative L2 error of all values together.
double l2_limit(Closeness closeness) {
  switch (closeness) {
    case Closeness::exact:
      return 0;
    case Closeness::fp32:
      return 1e-6;
    case Closeness::bf16:
    case Closeness::probabilities:
      return 1e-3;
    case Closeness::after_quantiser:
      return 5e-3;
  }
  return 0;
}

/// Largest accepted error of one value: the order class of docs/spec/kernels.md section 8, or one step of a code.
double element_limit(Closeness closeness, float expected, double largest, std::int32_t sum_length) {
  const double order = sum_length * 0x1p-22 * largest;
  switch (closeness) {
    case Closeness::exact:
      return 0;
    case Closeness::fp32:
      return std::fabs(expected) * 0x1p-20 + std::min(order, 0x1p-18 * largest);
    case Closeness::bf16:
      return std::fabs(expected) * 0x1p-7 + order;
    case Closeness::probabilities:
      return std::fabs(expected) * 0x1p-7 + 0x1p-8 * largest;
    case Closeness::after_quantiser:
      return std::fabs(expected) * 0.5 + 0.1 * largest;
  }
  return 0;
}

void expect_close(const OpOutput& actual, const OpOutput& expected, std::int32_t sum_length) {
  if (expected.closeness == Closeness::exact) {
    EXPECT_EQ(actual.bytes, expected.bytes) << expected.name;
    return;
  }
  ASSERT_EQ(actual.values.size(), expected.values.size()) << expected.name;
  double largest = 0;
  for (const float value : expected.values) {
    largest = std::max<double>(largest, std::fabs(value));
  }
  std::vector<float> difference(expected.values.size());
  std::size_t worst = 0;
  double worst_excess = -1;
  for (std::size_t i = 0; i < difference.size(); ++i) {
    difference[i] = actual.values[i] - expected.values[i];
    const double excess = std::fabs(difference[i]) - element_limit(expected.closeness, expected.values[i], largest, sum_length);
    if (!(excess <= worst_excess)) {
      worst_excess = excess;
      worst = i;
    }
  }
  EXPECT_LE(worst_excess, 0) << expected.name << "[" << worst << "]: " << actual.values[worst] << " instead of " << expected.values[worst];
  EXPECT_LE(norm(difference), l2_limit(expected.closeness) * norm(expected.values)) << expected.name;
}

/// Checks that rows `chosen` of a run with all rows have the bytes of a run with the chosen rows only.
void expect_same_rows(const std::vector<OpOutput>& all, const std::vector<OpOutput>& some, std::span<const std::int32_t> chosen) {
  for (std::size_t output = 0; output < all.size(); ++output) {
    const std::int64_t width = all[output].bytes_per_row;
    for (std::size_t i = 0; width > 0 && i < chosen.size(); ++i) {
      const auto* among = all[output].bytes.data() + chosen[i] * width;
      const auto* alone = some[output].bytes.data() + static_cast<std::int64_t>(i) * width;
      EXPECT_TRUE(std::equal(among, among + width, alone)) << all[output].name << " of row " << chosen[i];
    }
  }
}

void expect_agreement_of(const std::vector<OpCase>& cases, std::span<const std::int32_t> row_counts, Device& device) {
  const std::unique_ptr<Device> reference = make_implementation(reference_implementation());
  for (const OpCase& op_case : cases) {
    for (const std::int32_t count : row_counts) {
      SCOPED_TRACE(op_case.op + " " + op_case.shape + " rows " + std::to_string(count));
      const std::vector<std::int32_t> rows = first_rows(count);
      const std::vector<OpOutput> actual = run_case(op_case, device, rows);
      const std::vector<OpOutput> expected = run_case(op_case, *reference, rows);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < actual.size(); ++i) {
        expect_close(actual[i], expected[i], op_case.sum_length);
      }
    }
  }
}

using Choice = std::vector<std::int32_t>;

/// Rows of a step of `count` rows against runs with some of them only.
void expect_choices_independent(const OpCase& op_case, std::int32_t count, const std::vector<Choice>& choices, Device& device) {
  if (op_case.op == "attend" && op_case.shape.ends_with("from 100")) {
    return;  // a draft block: its rows see each other
  }
  SCOPED_TRACE(op_case.op + " " + op_case.shape);
  const std::vector<OpOutput> all = run_case(op_case, device, first_rows(count));
  for (const Choice& chosen : choices) {
    expect_same_rows(all, run_case(op_case, device, chosen), chosen);
  }
}

}  // namespace

const std::vector<OpCase>& table() {
  static const std::vector<OpCase> cases = contract_table();
  return cases;
}

std::vector<OpOutput> run_case(const OpCase& op_case, Device& device, std::span<const std::int32_t> rows) {
  PreparedOp prepared = op_case.prepare(device, rows);
  prepared.run(device.ops(), prepared.memory->stream());
  prepared.memory->stream().synchronize();
  std::vector<OpOutput> out = prepared.outputs();
  EXPECT_TRUE(prepared.memory->guards_intact()) << op_case.op << " " << op_case.shape << " writes beyond its rows";
  return out;
}

void expect_agreement(Device& device) { expect_agreement_of(table(), Choice{0, 1, 2, 3, 6, 63, 64, 65}, device); }

void expect_agreement_at_real_widths(Device& device) { expect_agreement_of(real_table(), Choice{1, 5}, device); }

void expect_rows_independent(Device& device) {
  for (const OpCase& op_case : table()) {
    expect_choices_independent(op_case, 130, {{0}, {17}, {39}, {64}, {129}, {3, 4}, {38, 39, 40}, {5, 9, 70, 71, 72, 73, 74, 75}}, device);
  }
}

void expect_rows_of_long_steps_independent(Device& device) {
  for (const OpCase& op_case : table()) {
    const std::int32_t count = std::min(1000, op_case.max_rows);
    expect_choices_independent(op_case, count, {{0}, {count / 2}, {count - 1}, {63, 64, 65}, {20, 21, 255, 256, 257}, {511, 512, 513}},
                               device);
  }
}

void expect_rows_independent_at_real_widths(Device& device) {
  for (const OpCase& op_case : real_table()) {
    expect_choices_independent(op_case, 20, {{0}, {7, 8, 9}}, device);
  }
}

void expect_rows_of_long_steps_independent_at_real_widths(Device& device) {
  const Choice some = {10, 11, 12, 13, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66,
                       67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86};
  for (const OpCase& op_case : real_table()) {
    if (op_case.op == "attend" || op_case.op == "index_select" || op_case.op == "mix" || op_case.op == "collapse_norm" ||
        op_case.op == "engram_gate") {
      for (const std::int32_t count : {140, std::min(op_case.op == "mix" ? 6600 : 1000, op_case.max_rows)}) {
        expect_choices_independent(op_case, count, {{0}, {7, 8, 9}, {128, 129, 130, 131, 132, 133, 134, 135, 136}, {count - 1}, some},
                                   device);
      }
    }
  }
}

void expect_rows_of_products_independent_at_real_widths(Device& device) {
  const std::vector<OpCase> cases = {linear_q8_case({WeightFormat::fp8, 1, 16384, 1280}),
                                     linear_q8_case({WeightFormat::fp8, 1, 1280, 5120}),
                                     linear_q8_case({WeightFormat::fp8, 1, 5120, 1280}),
                                     linear_q8_case({WeightFormat::fp8, 4, 256, 4096}),
                                     linear_q8_case({WeightFormat::fp4, 1, 256, 5120}),
                                     linear_q8_case({WeightFormat::fp4, 1, 16384, 1280}),
                                     linear_bf16_case(16384, 1024, LinearResult::f32),
                                     linear_bf16_case(512, 5120, LinearResult::bf16),
                                     moe_case({2560, 1152, 8, 2})};
  for (const OpCase& op_case : cases) {
    for (const std::int32_t count : {70, 300, 700}) {
      const std::int32_t last = count - 1;
      expect_choices_independent(op_case, count, {{0}, {last}, {7, 8, 9, 60, last}, first_rows(20), first_rows(50), first_rows(last)},
                                 device);
    }
  }
}

}  // namespace deepinfer::test
