#include "backends/cpu/cpu_device.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "backends/cpu/reference/reference_ops.h"

namespace deepinfer::cpu {
namespace {

constexpr std::size_t kAlignment = 256;  // promised by Device::allocate

class CpuStream final : public Stream {
 public:
  void synchronize() override {}
  void copy(void* destination, const void* source, std::size_t size_bytes) override {
    if (size_bytes > 0) {
      std::memcpy(destination, source, size_bytes);
    }
  }
};

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, std::unique_ptr<Ops> ops) : info_(std::move(info)), ops_(std::move(ops)) {}

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  [[nodiscard]] Ops& ops() override { return *ops_; }

  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override {
    const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded < size_bytes) {
      return {};
    }
    void* data = std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded);
    if (data == nullptr) {
      return {};
    }
    return {data, size_bytes, [](void* memory, std::size_t) { std::free(memory); }};
  }

 private:
  DeviceInfo info_;
  std::unique_ptr<Ops> ops_;
};

std::size_t physical_memory_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

std::unique_ptr<Device> make_device(const CpuOptions&) {
  DeviceInfo info{.name = "cpu", .description = "plain reference kernels", .memory_bytes = physical_memory_bytes(), .num_threads = 1};
  return std::make_unique<CpuDevice>(std::move(info), std::make_unique<ReferenceOps>());
}

}  // namespace deepinfer::cpu
