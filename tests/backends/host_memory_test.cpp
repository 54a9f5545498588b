// Buffers of the CPU: aligned, apart from each other, released in any order and after their allocator.
#include "backends/cpu/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace deepinfer::test {
namespace {

using cpu::HostMemory;
using cpu::kBufferAlignment;

bool holds(const Buffer& buffer, int value) {
  return std::all_of(buffer.data(), buffer.data() + buffer.size_bytes(), [value](std::byte b) { return b == std::byte(value); });
}

TEST(HostMemory, BuffersAreAlignedAndDoNotOverlap) {
  HostMemory memory;
  std::vector<Buffer> buffers;
  for (const std::size_t size_bytes : {1UL, 255UL, 256UL, 257UL, 100000UL, 4UL << 20, (4UL << 20) + 1, 20UL << 20}) {
    buffers.push_back(memory.allocate(size_bytes));
    ASSERT_NE(buffers.back().data(), nullptr);
    EXPECT_EQ(buffers.back().size_bytes(), size_bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % kBufferAlignment, 0U);
    std::memset(buffers.back().data(), static_cast<int>(buffers.size()), size_bytes);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(holds(buffers[i], static_cast<int>(i) + 1)) << "buffer " << i;
  }
}

TEST(HostMemory, BuffersAreReleasedInAnyOrderAndAfterTheirAllocator) {
  std::mt19937 random(5);
  std::vector<Buffer> kept;
  {
    HostMemory memory;
    for (int i = 0; i < 300; ++i) {  // several chunks
      kept.push_back(memory.allocate(1 + random() % 300000));
      ASSERT_NE(kept.back().data(), nullptr);
      std::memset(kept.back().data(), i % 251, kept.back().size_bytes());
      if (i % 3 == 0) {
        std::swap(kept[random() % kept.size()], kept.back());
        kept.pop_back();
      }
    }
  }
  std::ranges::shuffle(kept, random);
  for (; !kept.empty(); kept.pop_back()) {
    EXPECT_TRUE(holds(kept.back(), std::to_integer<int>(*kept.back().data())));
  }
}

TEST(HostMemory, AnEmptyBufferHasAnAddress) {
  HostMemory memory;
  const Buffer buffer = memory.allocate(0);
  EXPECT_NE(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 0U);
}

TEST(HostMemory, MoreThanTheSystemHasGivesAnEmptyBuffer) {
  HostMemory memory;
  EXPECT_EQ(memory.allocate(SIZE_MAX).data(), nullptr);
  EXPECT_EQ(memory.allocate(SIZE_MAX / 2).data(), nullptr);
  EXPECT_NE(memory.allocate(64).data(), nullptr);
}

}  // namespace
}  // namespace deepinfer::test
