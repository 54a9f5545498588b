#include "backends/cpu/host_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "backends/cpu/memory_nodes.h"

namespace deepinfer::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunkBytes = std::size_t{16} << 20;  // aligned to its size, so that a buffer finds its chunk
constexpr std::size_t kLargestShared = kChunkBytes / 4;     // larger buffers have their own pages

/// At the start of a chunk: its buffers, and one more while the allocator fills it.
struct ChunkHeader {
  std::atomic<std::int64_t> users;
};
constexpr std::size_t kHeaderBytes = kBufferAlignment;
static_assert(sizeof(ChunkHeader) <= kHeaderBytes);

std::size_t round_up(std::size_t size_bytes, std::size_t unit) { return (size_bytes + unit - 1) / unit * unit; }

/// Pages at a multiple of `alignment`; nullptr when there are none. Large pages are a wish: without them everything works, slower.
std::byte* map_pages(std::size_t size_bytes, std::size_t alignment) {
  const std::size_t reserved_bytes = size_bytes + alignment;
  void* reserved = mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) {
    return nullptr;
  }
  auto* const begin = static_cast<std::byte*>(reserved);
  const std::size_t skipped_bytes = round_up(reinterpret_cast<std::uintptr_t>(begin), alignment) - reinterpret_cast<std::uintptr_t>(begin);
  if (skipped_bytes > 0) {
    munmap(begin, skipped_bytes);
  }
  munmap(begin + skipped_bytes + size_bytes, alignment - skipped_bytes);
  madvise(begin + skipped_bytes, size_bytes, MADV_HUGEPAGE);
  static const std::uint64_t nodes = memory_nodes();
  spread_over_nodes(begin + skipped_bytes, size_bytes, nodes);
  return begin + skipped_bytes;
}

void leave_chunk(std::byte* chunk) {
  auto* header = std::launder(reinterpret_cast<ChunkHeader*>(chunk));
  if (header->users.fetch_sub(1) == 1) {
    munmap(chunk, kChunkBytes);
  }
}

void release_shared(void* data, std::size_t) {
  leave_chunk(static_cast<std::byte*>(data) - reinterpret_cast<std::uintptr_t>(data) % kChunkBytes);
}

void release_own(void* data, std::size_t size_bytes) { munmap(data, round_up(size_bytes, kHugePage)); }

}  // namespace

HostMemory::~HostMemory() { close_chunk(); }

void HostMemory::close_chunk() {
  if (chunk_ != nullptr) {
    leave_chunk(chunk_);
    chunk_ = nullptr;
  }
}

bool HostMemory::open_chunk() {
  close_chunk();
  chunk_ = map_pages(kChunkBytes, kChunkBytes);
  if (chunk_ == nullptr) {
    return false;
  }
  new (chunk_) ChunkHeader{1};
  used_bytes_ = kHeaderBytes;
  return true;
}

Buffer HostMemory::allocate(std::size_t size_bytes) {
  if (size_bytes > kLargestShared) {
    const std::size_t rounded = round_up(size_bytes, kHugePage);
    std::byte* own = rounded < size_bytes || rounded + kHugePage < rounded ? nullptr : map_pages(rounded, kHugePage);
    return own == nullptr ? Buffer() : Buffer(own, size_bytes, release_own);
  }
  const std::size_t rounded = round_up(size_bytes == 0 ? 1 : size_bytes, kBufferAlignment);
  if ((chunk_ == nullptr || used_bytes_ + rounded > kChunkBytes) && !open_chunk()) {
    return {};
  }
  std::byte* data = chunk_ + used_bytes_;
  used_bytes_ += rounded;
  std::launder(reinterpret_cast<ChunkHeader*>(chunk_))->users.fetch_add(1);
  return {data, size_bytes, release_shared};
}

}  // namespace deepinfer::cpu
