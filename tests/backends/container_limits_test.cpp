// Control groups of both versions, as directories of a test.
#include "backends/cpu/container_limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

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

}  // namespace
}  // namespace deepinfer::test
