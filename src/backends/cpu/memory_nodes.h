// Which memory nodes a machine has, and spreading memory over them. Tasks are handed to whichever core is free, so every core reads every
// page: spread page by page over the nodes, all of them deliver at once; touched by one thread, one node would have to deliver alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace deepinfer::cpu {

/// Nodes with memory, one bit each, of those below 64; 0 when the system does not say.
[[nodiscard]] std::uint64_t memory_nodes(const std::filesystem::path& nodes = "/sys/devices/system/node");

/// Pages that are not touched yet go to the nodes of `mask` in turn. A wish: where it is refused, pages lie where they are touched first.
void spread_over_nodes(void* data, std::size_t size_bytes, std::uint64_t mask);

}  // namespace deepinfer::cpu
