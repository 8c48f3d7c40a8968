#include "server/metrics/process_metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace warpcall {
namespace {

TEST(ParseProcStatTest, ReadsTheFieldsWhateverTheCommandIsCalled) {
  for (const char* name : {"warpcalld", "a b", "x) R 9 (y", ")", ""}) {
    const std::string line =
        std::string("4242 (") + name +
        ") S 1 4242 4242 0 -1 4194560 900 0 3 0 111 222 5 6 20 0 17 0 987654 1048576 345 "
        "18446744073709551615 1 1 0\n";
    const std::optional<ProcStat> stat = ParseProcStat(line);
    ASSERT_TRUE(stat.has_value()) << line;
    EXPECT_EQ(stat->user_ticks, 111u);
    EXPECT_EQ(stat->system_ticks, 222u);
    EXPECT_EQ(stat->threads, 17u);
    EXPECT_EQ(stat->start_ticks_since_boot, 987654u);
    EXPECT_EQ(stat->virtual_bytes, 1048576u);
    EXPECT_EQ(stat->resident_pages, 345u);
  }
}

TEST(ParseProcStatTest, RefusesWhatIsNoSuchLine) {
  EXPECT_FALSE(ParseProcStat("").has_value());
  EXPECT_FALSE(ParseProcStat("4242 (warpcalld) S 1 2 3").has_value());
  EXPECT_FALSE(
      ParseProcStat("4242 (a) S 1 1 1 0 -1 1 1 0 3 0 x 222 5 6 20 0 17 0 9 1 3 1").has_value());
}

class ProcessStatsTest : public ::testing::Test {
 protected:
  static ProcessStats Read() {
    const std::optional<ProcessStats> stats = ReadProcessStats();
    EXPECT_TRUE(stats.has_value());
    return stats.value_or(ProcessStats());
  }
};

TEST_F(ProcessStatsTest, CountsDescriptors) {
  const double before = Read().open_fds;
  // Lists them, as some systems allow a thousand million; one was the list's own.
  std::vector<int> listed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    listed.push_back(std::stoi(entry.path().filename()));
  int open_fds = 0;
  for (const int fd : listed) open_fds += fcntl(fd, F_GETFD) >= 0;
  EXPECT_EQ(before, open_fds);
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(Read().open_fds, before + 1);
  close(fd);
  EXPECT_EQ(Read().open_fds, before);
  EXPECT_GE(Read().max_fds, before);
}

TEST_F(ProcessStatsTest, CountsThreads) {
  std::atomic<bool> stop{false};
  const auto wait = [&stop] { stop.wait(false); };
  // A sanitizer starts a thread of its own beside the first one.
  std::vector<std::thread> threads;
  threads.emplace_back(wait);
  const double before = Read().threads;
  for (int i = 0; i < 5; ++i) threads.emplace_back(wait);
  EXPECT_EQ(Read().threads, before + 5);
  stop = true;
  stop.notify_all();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ProcessStatsTest, SeesMemoryBeingUsed) {
  const ProcessStats before = Read();
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> block(kBytes, 1);  // written, so resident
  const ProcessStats after = Read();
  // The kernel counts resident pages per thread and adds them up late: some hundred KiB may be
  // missing.
  EXPECT_GE(after.resident_bytes - before.resident_bytes, 0.9 * static_cast<double>(kBytes));
  EXPECT_GE(after.virtual_bytes, after.resident_bytes);
  EXPECT_EQ(block[kBytes - 1], 1);
}

TEST_F(ProcessStatsTest, CpuTimeFollowsTheClock) {
  const double before = Read().cpu_seconds;
  const std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 10) {
  }
  const double spent = Read().cpu_seconds - before;
  EXPECT_GE(spent, 0.05);
  EXPECT_LE(spent, 60);
}

TEST_F(ProcessStatsTest, StartedNotLongAgo) {
  const double now = static_cast<double>(absl::ToUnixSeconds(absl::Now()));
  const double start = Read().start_time_seconds;
  EXPECT_LE(start, now + 2);  // the time of boot is known to the second
  EXPECT_GE(start, now - 3600);
  EXPECT_EQ(Read().start_time_seconds, start);
}

TEST(ProcessFamiliesTest, HaveTheAgreedNamesAndUnits) {
  ProcessStats stats;
  stats.cpu_seconds = 1.5;
  stats.resident_bytes = 2;
  stats.virtual_bytes = 3;
  stats.start_time_seconds = 4;
  stats.open_fds = 5;
  stats.max_fds = 6;
  stats.threads = 7;
  std::vector<prometheus::MetricFamily> families;
  AppendProcessFamilies(stats, &families);
  ASSERT_EQ(families.size(), 7u);
  EXPECT_EQ(families[0].name, "process_cpu_seconds_total");
  EXPECT_EQ(families[0].type, prometheus::MetricType::Counter);
  EXPECT_EQ(families[0].metric[0].counter.value, 1.5);
  const char* const names[] = {"process_resident_memory_bytes",
                               "process_virtual_memory_bytes",
                               "process_start_time_seconds",
                               "process_open_fds",
                               "process_max_fds",
                               "process_threads"};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(families[i + 1].name, names[i]);
    EXPECT_EQ(families[i + 1].type, prometheus::MetricType::Gauge);
    EXPECT_EQ(families[i + 1].metric[0].gauge.value, i + 2);
  }
}

}  // namespace
}  // namespace warpcall
