#include "backends/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "backends/cpu/free_memory.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kOldestMajor = 9;  // SM90

/// What it gave is given back after a fault too, where that fails.
class CudaDevice final : public Device {
 public:
  CudaDevice(int device, DeviceInfo info) : device_(device), info_(std::move(info)) {}

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(device_, fault_); }
  [[nodiscard]] Ops& ops() override { return ops_; }

  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override {
    must(cudaSetDevice(device_));
    void* data = nullptr;
    if (cudaMalloc(&data, size_bytes == 0 ? 1 : size_bytes) != cudaSuccess) {
      cudaGetLastError();  // a full device is an answer, not a fault: forget it
      return {};
    }
    return {data, size_bytes, [](void* memory, std::size_t) { cudaFree(memory); }};
  }

  [[nodiscard]] Buffer allocate_host(std::size_t size_bytes) override {
    must(cudaSetDevice(device_));
    void* data = nullptr;
    if (cudaMallocHost(&data, size_bytes == 0 ? 1 : size_bytes) != cudaSuccess) {
      cudaGetLastError();
      return {};
    }
    return {data, size_bytes, [](void* memory, std::size_t) { cudaFreeHost(memory); }};
  }

 private:
  int device_ = 0;
  DeviceInfo info_;
  Fault fault_;
  CudaOps ops_{fault_};
};

}  // namespace

Result<std::unique_ptr<Device>> make_device(const CudaOptions& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    return fail(ErrorKind::unsupported, std::string("no usable NVIDIA GPU: ") + cudaGetErrorString(status));
  }
  if (options.device < 0 || options.device >= count) {
    return fail(ErrorKind::not_found,
                "there is no GPU " + std::to_string(options.device) + "; the driver shows " + std::to_string(count) + ", counted from 0");
  }
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, options.device));
  if (properties.major < kOldestMajor) {
    return fail(ErrorKind::unsupported, std::string(properties.name) + " is older than SM90 (Hopper), which these kernels need");
  }
  DeviceInfo info{
      .name = "cuda:" + std::to_string(options.device),
      .description = std::string(properties.name) + ", SM" + std::to_string(properties.major) + std::to_string(properties.minor),
      .memory_bytes = properties.totalGlobalMem,
      .host_bytes = cpu::free_memory_bytes(),
      .num_threads = 0,
      .reads_host_memory = false};
  return std::make_unique<CudaDevice>(options.device, std::move(info));
}

}  // namespace deepinfer::cuda
