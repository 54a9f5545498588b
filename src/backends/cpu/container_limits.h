// What the control groups of this process allow: processor time and memory, of either version of the interface.
// Not here: the affinity mask and what the machine has.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace deepinfer::cpu {

struct ContainerLimits {
  double processors = 0;         ///< processor seconds per second; 0: no limit
  std::size_t memory_bytes = 0;  ///< 0: no limit
  std::optional<std::size_t> free_bytes = {};  ///< of memory, what is cached of files counted as free; none: no limit
};

/// The least of the limits on the way from the group of the process to the root. `process` holds "cgroup" as /proc/self does; `groups` is
/// where the hierarchies are mounted. Files that are missing or cannot be read set no limit.
[[nodiscard]] ContainerLimits container_limits(const std::filesystem::path& process = "/proc/self",
                                               const std::filesystem::path& groups = "/sys/fs/cgroup");

}  // namespace deepinfer::cpu
