// When every kernel and copy on a GPU began and ended, inside recorded steps too. A library that the driver loads into any program:
//   CUDA_INJECTION64_PATH=build/dev/bench/ops/libgpu_timeline.so GPU_TIMELINE=/tmp/t.txt deepinfer bench decode --device cuda ...
// writes a line for each when the program ends; show_timeline.py prints the last step. Tracing makes a step 3 to 10 % longer.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Event {
  std::uint64_t begin_ns, end_ns;
  std::string shape;  // blocks of a kernel, bytes of a copy
  std::uint32_t stream;
  std::string name;
};

std::mutex mutex;
std::vector<Event> events;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size_bytes, std::size_t* max_records) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBytes));
  *size_bytes = kBytes;
  *max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto& k = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      const std::string shape = std::to_string(k.gridX) + "," + std::to_string(k.gridY) + "," + std::to_string(k.gridZ);
      events.push_back({k.start, k.end, shape, k.streamId, k.name == nullptr ? "?" : k.name});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      events.push_back({c.start, c.end, std::to_string(c.bytes), c.streamId, "copy"});
    }
  }
  std::free(buffer);
}

void write_events() {
  cuptiActivityFlushAll(1);
  const char* path = std::getenv("GPU_TIMELINE");
  std::FILE* file = std::fopen(path == nullptr ? "gpu_timeline.txt" : path, "w");
  if (file == nullptr) {
    return;
  }
  for (const Event& e : events) {
    std::fprintf(file, "%llu %llu %s %u %s\n", static_cast<unsigned long long>(e.begin_ns), static_cast<unsigned long long>(e.end_ns),
                 e.shape.c_str(), e.stream, e.name.c_str());
  }
  std::fclose(file);
}

}  // namespace

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  std::atexit(write_events);
  return 1;
}
