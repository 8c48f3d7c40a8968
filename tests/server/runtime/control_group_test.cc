#include "server/runtime/cpu/control_group.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"

namespace warpcall {
namespace {

class ControlGroupTest : public ::testing::Test {
 protected:
  ControlGroupTest() { Write("proc/meminfo", "MemTotal:       4000 kB\nMemFree:        100 kB\n"); }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.Path(name)).parent_path());
    std::ofstream(folder_.Path(name)) << text;
  }
  int64_t Limit() const { return MemoryLimitBytes(folder_.Path("")); }
  int Cpus() const { return UsableCpus(16, folder_.Path("")); }

  testing::TempFolder folder_;
};

TEST_F(ControlGroupTest, IsTheMachinesWhereNoGroupHasALess) {
  EXPECT_EQ(Limit(), 4000 * 1024);
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/memory.max", "9223372036854771712\n");
  EXPECT_EQ(Limit(), 4000 * 1024);
}

TEST_F(ControlGroupTest, IsTheLeastOfTheGroupAndThoseAboveIt) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "3000000\n");
  EXPECT_EQ(Limit(), 3'000'000);
  Write("sys/fs/cgroup/a/memory.max", "2000000\n");
  EXPECT_EQ(Limit(), 2'000'000);
  // A container sees its own group here.
  Write("sys/fs/cgroup/memory.max", "1000000\n");
  EXPECT_EQ(Limit(), 1'000'000);
}

TEST_F(ControlGroupTest, ReadsTheFirstVersionsGroups) {
  Write("proc/self/cgroup", "9:cpu:/x\n8:memory:/docker/0af7\n0::/\n");
  Write("sys/fs/cgroup/memory/docker/0af7/memory.limit_in_bytes", "700000\n");
  EXPECT_EQ(Limit(), 700'000);
}

TEST_F(ControlGroupTest, CpusAreTheMachinesWhereNoGroupHasAQuota) {
  EXPECT_EQ(Cpus(), 16);
  Write("proc/self/cgroup", "0::/a\n");
  Write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(Cpus(), 16);
  Write("sys/fs/cgroup/cpu.max", "3200000 100000\n");
  EXPECT_EQ(Cpus(), 16);
}

TEST_F(ControlGroupTest, CpusAreTheLeastQuotaRoundedUp) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(Cpus(), 3);
  Write("sys/fs/cgroup/a/b/cpu.max", "10000 50000\n");
  EXPECT_EQ(Cpus(), 1);
}

TEST_F(ControlGroupTest, CpusOfTheFirstVersionsGroups) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/pod/c\n3:cpuset:/x\n0::/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/pod/c/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/pod/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cpus(), 16);
  Write("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "400000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cpus(), 4);
}

TEST_F(ControlGroupTest, MemoryIsNoMoreThanTheProcessMayMap) {
  Write("proc/meminfo", "MemTotal: 4000000000000 kB\n");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  // More than sanitizers map for themselves.
  const rlimit lower = {rlim_t{1} << 50, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &lower), 0);
  EXPECT_EQ(Limit(), int64_t{1} << 50);
  EXPECT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

TEST(ControlGroup, IsKnownHere) {
  EXPECT_GT(MemoryLimitBytes(), int64_t{64} << 20);
  EXPECT_LT(MemoryLimitBytes(), int64_t{1} << 50);
  EXPECT_GE(UsableCpus(), 1);
}

TEST_F(ControlGroupTest, TasksAreTheLeastThatAGroupAllows) {
  const auto tasks = [&] { return TaskLimit(folder_.Path("")); };
  EXPECT_EQ(tasks(), -1);
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/pids.max", "max\n");
  EXPECT_EQ(tasks(), -1);
  Write("sys/fs/cgroup/a/b/pids.max", "300\n");
  Write("sys/fs/cgroup/a/pids.max", "200\n");
  EXPECT_EQ(tasks(), 200);
  Write("proc/self/cgroup", "8:pids:/docker/0af7\n0::/\n");
  Write("sys/fs/cgroup/pids/docker/0af7/pids.max", "100\n");
  EXPECT_EQ(tasks(), 100);
}

}  // namespace
}  // namespace warpcall
