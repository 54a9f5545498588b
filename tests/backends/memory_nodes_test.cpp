#include "backends/cpu/memory_nodes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace deepinfer::test {
namespace {

std::uint64_t nodes_of(const std::string& text) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "memory_nodes";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "has_memory") << text << '\n';
  return cpu::memory_nodes(directory);
}

TEST(MemoryNodes, ListsOfRangesAreRead) {
  EXPECT_EQ(nodes_of("0"), 0b1U);
  EXPECT_EQ(nodes_of("0-1"), 0b11U);
  EXPECT_EQ(nodes_of("0-1,4,6-7"), 0b11010011U);
  EXPECT_EQ(nodes_of(""), 0U);
}

TEST(MemoryNodes, AMachineThatDoesNotSayHasNone) { EXPECT_EQ(cpu::memory_nodes("/nowhere"), 0U); }

TEST(MemoryNodes, MemoryIsUsableWhateverTheMachineAnswers) {
  std::vector<char> memory(1 << 20);
  cpu::spread_over_nodes(memory.data(), memory.size(), cpu::memory_nodes());
  cpu::spread_over_nodes(memory.data(), memory.size(), ~std::uint64_t{0});
  memory.back() = 1;
  EXPECT_EQ(memory.back(), 1);
}

}  // namespace
}  // namespace deepinfer::test
