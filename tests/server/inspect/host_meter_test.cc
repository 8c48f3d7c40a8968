#include "server/inspect/host_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/temp_folder.h"

namespace warpcall::inspect {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWorkNs = 5'000'000;

int64_t OwnCpuNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Computes for `ns` of the calling thread's own time on a core.
void Compute(int64_t ns) {
  const int64_t end_ns = OwnCpuNs() + ns;
  while (OwnCpuNs() < end_ns) {
  }
}

int64_t Longest(const HostActivity& activity) {
  int64_t longest = 0;
  for (const ThreadTime& thread : activity.threads) longest = std::max(longest, thread.running_ns);
  return longest;
}

int64_t CountOf(const HostActivity& activity, const std::string& name) {
  for (const HostCount& count : activity.counts)
    if (count.name == name) return count.count;
  return -1;
}

TEST(HostMeterTest, TellsHowLongEachThreadWorked) {
  absl::Notification begin;
  absl::Notification worked;
  absl::Notification end;
  std::thread worker([&] {
    begin.WaitForNotification();
    Compute(2 * kWorkNs);
    worked.Notify();
    end.WaitForNotification();
  });
  HostMeter meter;
  begin.Notify();
  Compute(kWorkNs);
  worked.WaitForNotification();
  const HostActivity activity = meter.Stop();
  end.Notify();
  worker.join();
  EXPECT_GE(Longest(activity), 2 * kWorkNs);
  int at_work = 0;
  for (const ThreadTime& thread : activity.threads) {
    at_work += thread.running_ns >= kWorkNs;
    EXPECT_GE(thread.waiting_ns, 0);
  }
  EXPECT_EQ(at_work, 2);
}

TEST(HostMeterTest, CountsThreadsThatStartedSince) {
  absl::Notification worked;
  absl::Notification end;
  HostMeter meter;
  std::thread worker([&] {
    Compute(kWorkNs);
    worked.Notify();
    end.WaitForNotification();
  });
  worked.WaitForNotification();
  const HostActivity activity = meter.Stop();
  end.Notify();
  worker.join();
  EXPECT_GE(Longest(activity), kWorkNs);
}

// Work before the meter's construction does not count.
TEST(HostMeterTest, CountsFromItsConstruction) {
  Compute(10 * kWorkNs);
  const int64_t before_ns = OwnCpuNs();
  HostMeter meter;
  const HostActivity activity = meter.Stop();
  const int64_t taken_ns = OwnCpuNs() - before_ns;
  EXPECT_LE(Longest(activity), taken_ns);
}

TEST(HostMeterTest, HardwareIsCountedOrTheReasonIsTold) {
  HostMeter meter;
  Compute(kWorkNs);
  const HostActivity activity = meter.Stop();
  EXPECT_GE(CountOf(activity, "page faults"), 0);
  EXPECT_GE(CountOf(activity, "context switches"), 0);
  for (const char* const name : {"instructions", "cycles", "cache misses"}) {
    const bool is_missing = activity.counters_unavailable.find(name) != std::string::npos;
    EXPECT_EQ(CountOf(activity, name) >= 0, !is_missing) << activity.counters_unavailable;
  }
  const int64_t instructions = CountOf(activity, "instructions");
  EXPECT_TRUE(instructions == -1 || instructions > 10'000) << instructions;
}

// A file that reads as an event which counted `count`, by default for half of the time.
int FileOf(uint64_t count, uint64_t running_ns = 100) {
  const uint64_t value[] = {count, 200, running_ns};
  const int file = memfd_create("event", MFD_CLOEXEC);
  EXPECT_EQ(write(file, value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  lseek(file, 0, SEEK_SET);
  return file;
}

int opened = 0;

TEST(HostMeterTest, CountsOfAPartOfTheTimeStandForTheWhole) {
  opened = 0;
  HostMeter meter({[](const perf_event_attr& attributes, pid_t) {
                     opened += attributes.config == PERF_COUNT_HW_INSTRUCTIONS;
                     return FileOf(10 * (attributes.config + 1));
                   },
                   ""});
  const HostActivity activity = meter.Stop();
  ASSERT_GE(opened, 1);
  EXPECT_EQ(activity.counters_unavailable, "");
  EXPECT_EQ(CountOf(activity, "instructions"), 2 * 10 * (1 + PERF_COUNT_HW_INSTRUCTIONS) * opened);
  EXPECT_EQ(CountOf(activity, "cycles"), 2 * 10 * (1 + PERF_COUNT_HW_CPU_CYCLES) * opened);
  for (const HostCount& count : activity.counts)
    EXPECT_EQ(count.bytes, count.name == std::string("cache misses") ? 64 * count.count : 0);
}

// All counters may be taken by others for as long as the meter runs.
TEST(HostMeterTest, AnEventThatGotNoCounterIsNotMeasured) {
  HostMeter meter({[](const perf_event_attr& attributes, pid_t) {
                     errno = EMFILE;
                     if (attributes.config == PERF_COUNT_HW_CACHE_MISSES) return -1;
                     return attributes.config == PERF_COUNT_HW_CPU_CYCLES ? FileOf(0, 0)
                                                                          : FileOf(3);
                   },
                   ""});
  const HostActivity activity = meter.Stop();
  EXPECT_GE(CountOf(activity, "instructions"), 2 * 3);
  EXPECT_EQ(CountOf(activity, "cycles"), -1);
  EXPECT_EQ(activity.counters_unavailable,
            "no cache misses: perf_event_open: Too many open files; no cycles: none of this "
            "machine's counters was free");
}

TEST(HostMeterTest, SaysWhatIsMissingAndWhy) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("paranoid");
  std::ofstream(path) << "4\n";
  const auto missing = [&](int (*open)(const perf_event_attr&, pid_t)) {
    HostMeter meter({open, path.c_str()});
    return meter.Stop();
  };
  const HostActivity denied = missing([](const perf_event_attr&, pid_t) {
    errno = EACCES;
    return -1;
  });
  EXPECT_EQ(denied.counters_unavailable,
            "no instructions, cycles, cache misses: they are not permitted (perf_event_open: "
            "Permission denied); kernel.perf_event_paranoid is 4, 2 or less permits them unless a "
            "container's seccomp profile does not");
  EXPECT_EQ(CountOf(denied, "instructions"), -1);
  const HostActivity partly = missing([](const perf_event_attr& attributes, pid_t) {
    errno = ENOENT;
    return attributes.config == PERF_COUNT_HW_CACHE_MISSES ? -1 : FileOf(1);
  });
  EXPECT_THAT(partly.counters_unavailable,
              HasSubstr("no cache misses: this machine has none or hides them"));
  EXPECT_GE(CountOf(partly, "cycles"), 2);
  EXPECT_EQ(CountOf(partly, "cache misses"), -1);
  EXPECT_EQ(missing([](const perf_event_attr&, pid_t) {
              errno = EMFILE;
              return -1;
            }).counters_unavailable,
            "no instructions, cycles, cache misses: perf_event_open: Too many open files");
}

// An event that not every thread could be opened for is none: its count would be a part.
TEST(HostMeterTest, AnEventIsOfAllThreadsOrOfNone) {
  absl::Notification end;
  std::thread another([&] { end.WaitForNotification(); });
  opened = 0;
  HostMeter meter({[](const perf_event_attr& attributes, pid_t) {
                     errno = EMFILE;
                     if (attributes.config != PERF_COUNT_HW_CPU_CYCLES) return FileOf(1);
                     return opened++ == 0 ? FileOf(1) : -1;
                   },
                   ""});
  const HostActivity activity = meter.Stop();
  end.Notify();
  another.join();
  EXPECT_THAT(activity.counters_unavailable, HasSubstr("no cycles: "));
  EXPECT_EQ(CountOf(activity, "cycles"), -1);
  EXPECT_GE(CountOf(activity, "cache misses"), 4);
}

}  // namespace
}  // namespace warpcall::inspect
