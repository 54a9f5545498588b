#include "backends/cpu/container_limits.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace deepinfer::cpu {
namespace {

namespace fs = std::filesystem;

/// The lesser of two limits where 0 is none.
template <class T>
T lesser(T a, T b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

/// The number at the start of a file; 0 when there is none ("max", or no file).
template <class T>
T read_number(const fs::path& file) {
  std::ifstream in(file);
  T out{};
  return in >> out ? out : T{};
}

/// The sum of the numbers behind `names` in a file of lines "name number".
std::size_t read_sum(const fs::path& file, std::string_view first_name, std::string_view second_name) {
  std::ifstream in(file);
  std::size_t out = 0;
  std::string name;
  for (std::size_t value = 0; in >> name >> value;) {
    out += name == first_name || name == second_name ? value : 0;
  }
  return out;
}

/// What is left of a limit; none without one. Cached pages of files make room when memory is asked for.
std::optional<std::size_t> free_bytes(std::size_t limit, std::size_t used, std::size_t cached) {
  if (limit == 0) {
    return std::nullopt;
  }
  const std::size_t taken = used - std::min(used, cached);
  return limit - std::min(limit, taken);
}

/// The same for limits: whichever leaves less.
std::optional<std::size_t> lesser(std::optional<std::size_t> a, std::optional<std::size_t> b) { return a && b ? std::min(*a, *b) : a ? a : b; }

ContainerLimits lesser(const ContainerLimits& a, const ContainerLimits& b) {
  return {.processors = lesser(a.processors, b.processors),
          .memory_bytes = lesser(a.memory_bytes, b.memory_bytes),
          .free_bytes = lesser(a.free_bytes, b.free_bytes)};
}

/// Version 2: "cpu.max" holds quota and period in microseconds, "memory.max" bytes; "max" is no limit.
ContainerLimits limits_of_group(const fs::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0;
  double period = 0;
  const bool is_limited = static_cast<bool>(in >> quota >> period) && quota > 0 && period > 0;
  const auto memory_bytes = read_number<std::size_t>(group / "memory.max");
  const auto used_bytes = read_number<std::size_t>(group / "memory.current");
  return {.processors = is_limited ? quota / period : 0,
          .memory_bytes = memory_bytes,
          .free_bytes = free_bytes(memory_bytes, used_bytes, read_sum(group / "memory.stat", "inactive_file", "active_file"))};
}

/// Version 1: a quota of -1 and a number of bytes near 2^63 are no limit.
ContainerLimits limits_of_old_group(const fs::path& group) {
  constexpr std::size_t kNoLimitBytes = std::size_t{1} << 60;
  const auto quota = read_number<double>(group / "cpu.cfs_quota_us");
  const auto period = read_number<double>(group / "cpu.cfs_period_us");
  const auto limit_bytes = read_number<std::size_t>(group / "memory.limit_in_bytes");
  const std::size_t memory_bytes = limit_bytes < kNoLimitBytes ? limit_bytes : 0;
  const auto used_bytes = read_number<std::size_t>(group / "memory.usage_in_bytes");
  return {.processors = quota > 0 && period > 0 ? quota / period : 0,
          .memory_bytes = memory_bytes,
          .free_bytes = free_bytes(memory_bytes, used_bytes, read_sum(group / "memory.stat", "total_inactive_file", "total_active_file"))};
}

/// Limits of the group at root/path and of all groups above it. A path from outside a container does not exist in it: its root remains.
template <class Read>
ContainerLimits limits_up_to(const fs::path& root, std::string_view path, const Read& read) {
  ContainerLimits out;
  fs::path below = fs::path(path).relative_path();
  for (;;) {
    out = lesser(out, read(root / below));
    if (below.empty()) {
      return out;
    }
    below = below.parent_path();
  }
}

}  // namespace

ContainerLimits container_limits(const fs::path& process, const fs::path& groups) {
  ContainerLimits out;
  // Lines are "number:controllers:path"; version 2 has number 0 and no controllers.
  std::ifstream in(process / "cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = std::string_view(line).substr(second + 1);
    if (controllers.empty()) {
      std::error_code ignored;
      const fs::path unified = groups / "unified";  // beside hierarchies of version 1
      out = lesser(out, limits_up_to(fs::exists(unified, ignored) ? unified : groups, path, limits_of_group));
    } else {
      out = lesser(out, limits_up_to(groups / controllers, path, limits_of_old_group));
    }
  }
  return out;
}

}  // namespace deepinfer::cpu
