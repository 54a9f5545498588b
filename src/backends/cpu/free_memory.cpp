#include "backends/cpu/free_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "backends/cpu/container_limits.h"

namespace deepinfer::cpu {

std::size_t free_memory_bytes(const std::filesystem::path& meminfo, const std::filesystem::path& process,
                              const std::filesystem::path& groups) {
  constexpr std::size_t kKilobyte = 1024;
  std::size_t available = 0;
  std::ifstream in(meminfo);
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (line.starts_with(kName)) {
      available = std::stoull(line.substr(kName.size())) * kKilobyte;
    }
  }
  const ContainerLimits container = container_limits(process, groups);
  return container.free_bytes ? std::min(available, *container.free_bytes) : available;
}

}  // namespace deepinfer::cpu
