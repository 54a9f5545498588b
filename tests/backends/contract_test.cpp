// The contract table on the CPU: each fast implementation against the reference kernels, and the laws of batch invariance: a row alone
// equals the row among others, for any number of threads and on any instruction set, bit for bit.
#include "backends/contract.h"

#include <gtest/gtest.h>

#include "backends/implementations.h"

namespace deepinfer::test {
namespace {

/// The kernels that this machine runs.
Implementation best(std::int32_t num_threads) {
  Implementation out = fast_implementations().front();
  out.num_threads = num_threads;
  return out;
}

TEST(Contract, EveryOperationAgreesWithItsReferenceKernel) { expect_agreement(*make_implementation(best(1))); }

TEST(Contract, EveryOperationAgreesWithItsReferenceKernelAtRealWidths) { expect_agreement_at_real_widths(*make_implementation(best(1))); }

TEST(Contract, ARowAloneEqualsTheRowAmongOthers) { expect_rows_independent(*make_implementation(best(3))); }

TEST(Contract, ARowAloneEqualsTheRowAmongAThousand) { expect_rows_of_long_steps_independent(*make_implementation(best(2))); }

TEST(Contract, ARowAloneEqualsTheRowAmongOthersAtRealWidths) { expect_rows_independent_at_real_widths(*make_implementation(best(3))); }

TEST(Contract, ThreadsAndInstructionSetsChangeNoBit) {
  std::vector<std::unique_ptr<Device>> devices;
  const std::vector<Implementation> implementations = fast_implementations();
  for (const Implementation& implementation : implementations) {
    devices.push_back(make_implementation(implementation));
  }
  for (const OpCase& op_case : table()) {
    for (const std::int32_t count : {1, 5, 33, 67}) {
      const std::vector<std::int32_t> rows = first_rows(count);
      const std::vector<OpOutput> expected = run_case(op_case, *devices[0], rows);
      for (std::size_t device = 1; device < devices.size(); ++device) {
        SCOPED_TRACE(op_case.op + " " + op_case.shape + " on " + implementations[device].name);
        const std::vector<OpOutput> actual = run_case(op_case, *devices[device], rows);
        for (std::size_t i = 0; i < actual.size(); ++i) {
          EXPECT_EQ(actual[i].bytes, expected[i].bytes) << actual[i].name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
