#include "backends/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "backends/cpu/container_limits.h"
#include "backends/cpu/fast/fast_ops.h"
#include "backends/cpu/host_memory.h"
#include "backends/cpu/reference/reference_ops.h"

namespace deepinfer::cpu {
namespace {

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

  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override { return memory_.allocate(size_bytes); }

 private:
  DeviceInfo info_;
  HostMemory memory_;
  std::unique_ptr<Ops> ops_;
};

/// Memory of the machine, or of the container when that is less.
std::size_t usable_memory_bytes() {
  const std::size_t physical = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  const std::size_t limit = container_limits().memory_bytes;
  return limit > 0 ? std::min(limit, physical) : physical;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "processor of unknown name";
}

}  // namespace

std::unique_ptr<Device> make_device(const CpuOptions& options) {
  DeviceInfo info{.name = "cpu",
                  .description = processor_name(),
                  .memory_bytes = usable_memory_bytes(),
                  .host_bytes = 0,
                  .num_threads = 1,
                  .reads_host_memory = true};
  if (options.use_reference_kernels) {
    info.description += ", plain reference kernels";
    return std::make_unique<CpuDevice>(std::move(info), std::make_unique<ReferenceOps>());
  }
  info.num_threads = options.num_threads > 0 ? options.num_threads : usable_threads();
  const ProductUnit unit = std::min(options.best_unit, best_product_unit());
  constexpr std::string_view kKernels[] = {" kernels", " and BF16 kernels", " and AMX kernels"};  // of ProductUnit
  info.description += ", " + std::string(instruction_set()) + std::string(kKernels[static_cast<std::size_t>(unit)]);
  auto ops = std::make_unique<FastOps>(info.num_threads, unit);
  return std::make_unique<CpuDevice>(std::move(info), std::move(ops));
}

}  // namespace deepinfer::cpu
