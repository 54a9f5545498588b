// How much memory this process may still take.
// Not here: limits of processors and of the whole (container_limits.h).
#pragma once

#include <cstddef>
#include <filesystem>

namespace deepinfer::cpu {

/// What the machine has available, or what the container leaves when that is less. `meminfo` as the kernel writes it, the others as for
/// container_limits(). 0 when the machine does not say.
[[nodiscard]] std::size_t free_memory_bytes(const std::filesystem::path& meminfo = "/proc/meminfo",
                                            const std::filesystem::path& process = "/proc/self",
                                            const std::filesystem::path& groups = "/sys/fs/cgroup");

}  // namespace deepinfer::cpu
