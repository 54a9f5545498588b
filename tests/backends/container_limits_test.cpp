// Control groups of both versions, as directories of a test.
#include "backends/cpu/container_limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

#include "backends/cpu/free_memory.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;

class ContainerLimits : public ::testing::Test {
 protected:
  ContainerLimits() { fs::remove_all(root_); }
  ~ContainerLimits() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  [[nodiscard]] cpu::ContainerLimits limits() const { return cpu::container_limits(root_ / "process", root_ / "groups"); }
  [[nodiscard]] std::size_t free_memory() const { return cpu::free_memory_bytes(root_ / "meminfo", root_ / "process", root_ / "groups"); }

 private:
  fs::path root_ =
      fs::path(::testing::TempDir()) / ("container_limits_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ContainerLimits, NoFilesAndNoNumbersAreNoLimit) {
  EXPECT_EQ(limits().processors, 0);
  EXPECT_EQ(limits().memory_bytes, 0U);
  write("process/cgroup", "0::/\nnonsense\n1:cpu\n");
  write("groups/cpu.max", "max 100000\n");
  write("groups/memory.max", "max\n");
  EXPECT_EQ(limits().processors, 0);
  EXPECT_EQ(limits().memory_bytes, 0U);
}

TEST_F(ContainerLimits, TheLeastLimitOnTheWayToTheRootCounts) {
  write("process/cgroup", "0::/user.slice/app\n");
  write("groups/cpu.max", "max 100000\n");
  write("groups/user.slice/cpu.max", "150000 100000\n");
  write("groups/user.slice/memory.max", "4000000\n");
  write("groups/user.slice/app/cpu.max", "400000 100000\n");
  write("groups/user.slice/app/memory.max", "3000000\n");
  EXPECT_DOUBLE_EQ(limits().processors, 1.5);
  EXPECT_EQ(limits().memory_bytes, 3000000U);
}

TEST_F(ContainerLimits, APathFromOutsideTheContainerLeavesItsRoot) {
  write("process/cgroup", "0::/docker/0123\n");
  write("groups/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(limits().processors, 2);
}

TEST_F(ContainerLimits, TheFirstVersionIsReadToo) {
  write("process/cgroup", "4:memory:/box/a\n1:cpu,cpuacct:/box/a\n0::/\n");
  write("groups/unified/cgroup.procs", "");
  write("groups/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("groups/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("groups/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
  write("groups/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("groups/memory/box/a/memory.limit_in_bytes", "5000000\n");
  EXPECT_DOUBLE_EQ(limits().processors, 3);
  EXPECT_EQ(limits().memory_bytes, 5000000U);
}

TEST_F(ContainerLimits, WhatIsLeftOfMemoryIsThatOfTheFullestGroup) {
  write("process/cgroup", "0::/a/b\n");
  EXPECT_EQ(limits().free_bytes, std::nullopt);
  write("groups/a/memory.max", "9000000\n");
  write("groups/a/memory.current", "8000000\n");
  write("groups/a/memory.stat", "anon 5000000\ninactive_file 400000\nactive_file 200000\n");
  write("groups/a/b/memory.max", "5000000\n");
  write("groups/a/b/memory.current", "1000000\n");
  EXPECT_EQ(limits().free_bytes, 1600000U);
  write("groups/a/memory.current", "9900000\n");
  EXPECT_EQ(limits().free_bytes, 0U);
}

TEST_F(ContainerLimits, WhatIsLeftIsReadFromTheFirstVersionToo) {
  write("process/cgroup", "4:memory:/box\n");
  write("groups/memory/box/memory.limit_in_bytes", "5000000\n");
  write("groups/memory/box/memory.usage_in_bytes", "4000000\n");
  write("groups/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 300000\ntotal_active_file 200000\n");
  EXPECT_EQ(limits().free_bytes, 1500000U);
}

TEST_F(ContainerLimits, FreeMemoryIsWhatMachineAndContainerBothHave) {
  EXPECT_EQ(free_memory(), 0U) << "a machine that does not say";
  write("meminfo", "MemTotal:       24684084 kB\nMemAvailable:   4000 kB\n");
  EXPECT_EQ(free_memory(), 4096000U);
  write("process/cgroup", "0::/\n");
  write("groups/memory.max", "5000000\n");
  write("groups/memory.current", "2000000\n");
  EXPECT_EQ(free_memory(), 3000000U);
}

}  // namespace
}  // namespace deepinfer::test
