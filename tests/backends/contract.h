// How the contract table is checked on a device: against the reference kernels, and the laws of batch invariance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/op_cases/op_case.h"

namespace deepinfer::test {

/// The table, made once.
[[nodiscard]] const std::vector<OpCase>& table();

/// Runs one case; expects that nothing was written behind a buffer.
[[nodiscard]] std::vector<OpOutput> run_case(const OpCase& op_case, Device& device, std::span<const std::int32_t> rows);

/// Every operation agrees with its reference kernel within its class (docs/spec/kernels.md section 8).
void expect_agreement(Device& device);
/// The same at the widths of the released model, for few rows.
void expect_agreement_at_real_widths(Device& device);

/// A row alone has the bits of the row among others (docs/spec/kernels.md section 6).
void expect_rows_independent(Device& device);
/// The same for rows among a thousand.
void expect_rows_of_long_steps_independent(Device& device);
/// The same at the widths of the released model.
void expect_rows_independent_at_real_widths(Device& device);
/// The same for attention, index and mixing with so many rows that a GPU gives each of them fewer blocks.
void expect_rows_of_long_steps_independent_at_real_widths(Device& device);
/// Products and experts, many rows.
void expect_rows_of_products_independent_at_real_widths(Device& device);

}  // namespace deepinfer::test
