#include "backends/cpu/memory_nodes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <string>

namespace deepinfer::cpu {

std::uint64_t memory_nodes(const std::filesystem::path& nodes) {
  // "0-1,4": ranges of numbers.
  std::ifstream in(nodes / "has_memory");
  std::uint64_t mask = 0;
  for (unsigned first = 0; in >> first;) {
    unsigned last = first;
    if (in.peek() == '-') {
      in.ignore();
      in >> last;
    }
    for (unsigned node = first; node <= last && node < 64; ++node) {
      mask |= std::uint64_t{1} << node;
    }
    in.ignore();  // the comma
  }
  return mask;
}

void spread_over_nodes(void* data, std::size_t size_bytes, std::uint64_t mask) {
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE
  if (std::popcount(mask) > 1) {
    syscall(SYS_mbind, data, size_bytes, kInterleave, &mask, 64 + 1, 0);
  }
}

}  // namespace deepinfer::cpu
