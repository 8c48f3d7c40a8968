#include "server/inspect/machine.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "server/inspect/stolen_time.h"
#include "server/inspect/thread_waits.h"
#include "tests/temp_folder.h"

namespace warpcall::inspect {
namespace {

TEST(LinuxMachineTest, KnowsWhatTheServiceHasComputed) {
  const pid_t service = fork();
  if (service == 0) {
    for (volatile int turns = 0;;) turns = turns + 1;
  }
  ASSERT_GT(service, 0);
  const absl::Cleanup end_service = [service] {
    kill(service, SIGKILL);
    waitpid(service, nullptr, 0);
  };
  const auto machine = NewLinuxMachine(service);
  while (machine->ServiceNs() < 20'000'000) machine->Pause();
  kill(service, SIGSTOP);
  ASSERT_EQ(waitpid(service, nullptr, WUNTRACED), service);
  // The parent hears first: the way into the stop takes CPU time too, perhaps a core's next turn.
  int64_t stopped_ns = 0;
  int pauses = 0;
  for (; pauses < 1000 && machine->ServiceNs() != stopped_ns; ++pauses) {
    stopped_ns = machine->ServiceNs();
    machine->Pause();
  }
  EXPECT_LT(pauses, 1000) << "it computes while it is stopped";
}

TEST(LinuxMachineTest, WhereThereIsNoServiceItHasComputedNothing) {
  EXPECT_EQ(NewLinuxMachine(0)->ServiceNs(), 0);
}

TEST(StolenTimeTest, IsTheEighthFigureOfAllCores) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("stat");
  std::ofstream(path) << "cpu  52052 6579 12855 21349 391 0 87 174 3 0\n"
                         "cpu0 27185 2211 5928 11328 33 0 6 81 0 0\n";
  const StolenTime stolen(path);
  const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  EXPECT_EQ(stolen.Ns(), 174 * tick_ns);
  std::ofstream(path) << "cpu  52052 6579 12855 21349 391 0 87 175 3 0\n";
  EXPECT_EQ(stolen.Ns(), 175 * tick_ns);
}

TEST(StolenTimeTest, NothingIsStolenWhereTheSystemDoesNotTell) {
  const testing::TempFolder folder;
  EXPECT_EQ(StolenTime(folder.Path("none")).Ns(), 0);
  const std::string path = folder.Path("stat");
  for (const char* const text : {"", "cpu  1 2 3 4 5 6 7\n", "cpu  1 2 3 4 5 6 7 x\n", "\n"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(StolenTime(path).Ns(), 0) << text;
  }
}

TEST(StolenTimeTest, ThreadsWaitWhileTheHypervisorHasTheirCores) {
  const testing::TempFolder folder;
  const std::string path = folder.Path("stat");
  std::ofstream(path) << "cpu  0 0 0 0 0 0 0 1 0 0\n";
  const auto machine = NewLinuxMachine(0, path);
  const int64_t before_ns = machine->WaitedForCoreNs();
  // More than the threads of this process can have waited in so few moments.
  const int64_t ticks = 1000 * sysconf(_SC_CLK_TCK);
  std::ofstream(path) << "cpu  0 0 0 0 0 0 0 " << ticks << " 0 0\n";
  const int64_t stolen_ns = 999'000'000'000;
  for (int i = 0; i < 10'000 && machine->WaitedForCoreNs() - before_ns < stolen_ns; ++i)
    machine->Pause();
  EXPECT_GE(machine->WaitedForCoreNs() - before_ns, stolen_ns);
}

// Made-up threads: a folder with a file for each, as in /proc.
class ThreadWaitsTest : public ::testing::Test {
 protected:
  void Begin(const std::string& thread, int64_t waited_ns) {
    std::filesystem::create_directory(folder_.Path(thread));
    std::ofstream(folder_.Path(thread + "/schedstat")) << "5000 " << waited_ns << " 7\n";
  }
  // Nothing is read from the file of a thread that has ended.
  void End(const std::string& thread) {
    std::filesystem::resize_file(folder_.Path(thread + "/schedstat"), 0);
    std::filesystem::remove_all(folder_.Path(thread));
  }

  testing::TempFolder folder_;
};

TEST_F(ThreadWaitsTest, AddsUpThoseOfAllThreads) {
  Begin("1", 100);
  Begin("2", 30);
  ThreadWaits waits(folder_.Path("."));
  EXPECT_EQ(waits.Ns(), 130);
  Begin("1", 200);
  EXPECT_EQ(waits.Ns(), 230);
}

TEST_F(ThreadWaitsTest, AThreadInThePlaceOfOneThatEndedIsFound) {
  Begin("1", 100);
  Begin("2", 30);
  ThreadWaits waits(folder_.Path("."));
  EXPECT_EQ(waits.Ns(), 130);
  End("2");
  Begin("3", 7);
  EXPECT_EQ(waits.Ns(), 107);
}

TEST_F(ThreadWaitsTest, WithoutAFolderNobodyWaits) {
  EXPECT_EQ(ThreadWaits(folder_.Path("missing")).Ns(), 0);
}

// More threads than there are cores.
TEST(LinuxThreadWaitsTest, ThisProcessesThreadsAreSeenToWait) {
  // A system that does not count has no such file, or zeros in it, whatever has run.
  const std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 50) {
  }
  int64_t running_ns = 0;
  std::ifstream("/proc/self/schedstat") >> running_ns;
  if (running_ns == 0) GTEST_SKIP() << "this system does not count for how long threads wait";
  ThreadWaits waits;
  const int64_t before_ns = waits.Ns();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i <= std::thread::hardware_concurrency(); ++i)
    threads.emplace_back([&] {
      while (!stop.load()) {
      }
    });
  while (waits.Ns() < before_ns + 1'000'000) usleep(1000);
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace warpcall::inspect
