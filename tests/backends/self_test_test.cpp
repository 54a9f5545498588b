#include "backends/self_test.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "ops/ops.h"

namespace deepinfer::test {
namespace {

/// A CPU that damages what is copied to it, or has no memory.
class DamagedDevice final : public Device {
 public:
  explicit DamagedDevice(bool has_memory) : has_memory_(has_memory) {}

  [[nodiscard]] const DeviceInfo& info() const override { return cpu_->info(); }
  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override { return has_memory_ ? cpu_->allocate(size_bytes) : Buffer(); }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return std::make_unique<DamagingStream>(); }
  [[nodiscard]] Ops& ops() override { return cpu_->ops(); }

 private:
  class DamagingStream final : public Stream {
   public:
    void synchronize() override {}
    void copy(void* destination, const void* source, std::size_t size_bytes) override {
      std::memcpy(destination, source, size_bytes);
      if (size_bytes == 160 * 256 * 2) {  // the bf16 weight
        for (std::size_t i = 1537; i < 2048; i += 2) {
          static_cast<std::uint8_t*>(destination)[i] ^= 0x80U;  // the signs of one row
        }
      }
    }
  };

  // Vector units take bf16 weights as they are copied.
  std::unique_ptr<Device> cpu_ = cpu::make_device({.num_threads = 1, .best_unit = cpu::ProductUnit::vector});
  bool has_memory_;
};

TEST(SelfTest, TheFastKernelsPass) {
  const auto device = cpu::make_device({});
  const auto tested = self_test(*device);
  EXPECT_TRUE(tested) << tested.error().message;
}

TEST(SelfTest, OneWrongRowIsFound) {
  DamagedDevice device(true);
  const auto tested = self_test(device);
  ASSERT_FALSE(tested);
  EXPECT_EQ(tested.error().kind, ErrorKind::corrupt);
  EXPECT_NE(tested.error().message.find("fails its self-test: linear_bf16 gives"), std::string::npos) << tested.error().message;
}

TEST(SelfTest, NoMemoryIsAnErrorOfItsOwn) {
  DamagedDevice device(false);
  EXPECT_EQ(self_test(device).error().kind, ErrorKind::exhausted);
}

TEST(SelfTest, AGpuPasses) {
  const auto device = cuda::make_device({});
  if (!device) {
    GTEST_SKIP() << device.error().message;
  }
  const auto tested = self_test(**device);
  EXPECT_TRUE(tested) << tested.error().message;
}

}  // namespace
}  // namespace deepinfer::test
