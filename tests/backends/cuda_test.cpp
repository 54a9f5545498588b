// The contract table on an NVIDIA GPU. Skipped with the reason where there is none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "backends/contract.h"
#include "backends/cuda/cuda_device.h"

namespace deepinfer::test {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    auto device = cuda::make_device({});
    if (!device) {
      GTEST_SKIP() << device.error().message;
    }
    device_ = std::move(*device);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(Cuda, EveryOperationAgreesWithItsReferenceKernel) { expect_agreement(*device_); }

TEST_F(Cuda, ARowAloneEqualsTheRowAmongOthers) { expect_rows_independent(*device_); }

TEST_F(Cuda, EveryOperationAgreesWithItsReferenceKernelAtRealWidths) { expect_agreement_at_real_widths(*device_); }

TEST_F(Cuda, ARowAloneEqualsTheRowAmongOthersAtRealWidths) { expect_rows_independent_at_real_widths(*device_); }

TEST_F(Cuda, AProductOfARowAloneEqualsTheOneAmongManyAtRealWidths) { expect_rows_of_products_independent_at_real_widths(*device_); }

TEST_F(Cuda, ARowAloneEqualsTheRowAmongManyAtRealWidths) { expect_rows_of_long_steps_independent_at_real_widths(*device_); }

TEST_F(Cuda, TheSameCallTwiceGivesTheSameBits) {
  for (const OpCase& op_case : table()) {
    SCOPED_TRACE(op_case.op + " " + op_case.shape);
    const std::vector<std::int32_t> rows = first_rows(67);
    const std::vector<OpOutput> once = run_case(op_case, *device_, rows);
    const std::vector<OpOutput> again = run_case(op_case, *device_, rows);
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].bytes, again[i].bytes) << once[i].name;
    }
  }
}

TEST_F(Cuda, AFullDeviceGivesNoMemoryAndGoesOn) {
  EXPECT_EQ(device_->allocate(std::size_t{1} << 50).data(), nullptr);
  EXPECT_NE(device_->allocate(1 << 20).data(), nullptr);
}

/// Reads what is not there, goes on as if nothing was wrong, and looks. Ends the process with 0 when all is as it should be.
[[noreturn]] void break_the_device() {
  auto device = cuda::make_device({});
  const auto stream = (*device)->make_stream();
  const Buffer memory = (*device)->allocate(1 << 20);
  auto* values = reinterpret_cast<float*>(memory.data());
  (*device)->ops().add_rows(*stream, {.num_rows = 1, .width = 64, .x = reinterpret_cast<const float*>(16), .y = values});
  stream->synchronize();
  const std::string fault(stream->fault());
  std::fprintf(stderr, "%s\n", fault.c_str());
  float host = 0;
  stream->copy(&host, values, sizeof(host));
  (*device)->ops().add_rows(*stream, {.num_rows = 1, .width = 64, .x = values, .y = values});
  const bool records = stream->begin_recording();
  stream->synchronize();
  std::exit(!fault.empty() && !records && stream->fault() == fault ? 0 : 1);
}

TEST_F(Cuda, AKernelThatFailsStaysAsTheFaultOfTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(break_the_device(), testing::ExitedWithCode(0), "the GPU failed: an illegal memory access");
}

TEST(CudaDevice, AnAbsentGpuIsAnErrorThatSaysSo) {
  const auto device = cuda::make_device({.device = 1000});
  ASSERT_FALSE(device.has_value());
  EXPECT_FALSE(device.error().message.empty());
}

}  // namespace
}  // namespace deepinfer::test
