#include "server/runtime/cpu/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"

namespace warpcall {
namespace {

class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() { Write("proc/meminfo", "MemTotal:       4000 kB\nMemFree:        100 kB\n"); }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.Path(name)).parent_path());
    std::ofstream(folder_.Path(name)) << text;
  }
  int64_t Limit() const { return MemoryLimitBytes(folder_.Path("")); }

  testing::TempFolder folder_;
};

TEST_F(MemoryLimitTest, IsTheMachinesWhereNoGroupHasALess) {
  EXPECT_EQ(Limit(), 4000 * 1024);
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/memory.max", "9223372036854771712\n");
  EXPECT_EQ(Limit(), 4000 * 1024);
}

TEST_F(MemoryLimitTest, IsTheLeastOfTheGroupAndThoseAboveIt) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "3000000\n");
  EXPECT_EQ(Limit(), 3'000'000);
  Write("sys/fs/cgroup/a/memory.max", "2000000\n");
  EXPECT_EQ(Limit(), 2'000'000);
  // What a container sees of its own.
  Write("sys/fs/cgroup/memory.max", "1000000\n");
  EXPECT_EQ(Limit(), 1'000'000);
}

TEST_F(MemoryLimitTest, ReadsTheFirstVersionsGroups) {
  Write("proc/self/cgroup", "9:cpu:/x\n8:memory:/docker/0af7\n0::/\n");
  Write("sys/fs/cgroup/memory/docker/0af7/memory.limit_in_bytes", "700000\n");
  EXPECT_EQ(Limit(), 700'000);
}

TEST(MemoryLimit, IsKnownHere) {
  EXPECT_GT(MemoryLimitBytes(), int64_t{64} << 20);
  EXPECT_LT(MemoryLimitBytes(), int64_t{1} << 50);
}

}  // namespace
}  // namespace warpcall
