// How a real server waits for the network.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/server_process.h"
#include "warpcall/client.h"

namespace warpcall::testing {
namespace {

// A gRPC thread's work so far.
struct Thread {
  double cpu_seconds;
  int64_t sleeps;
};

std::map<std::string, Thread> ThreadsOfGrpc(pid_t server) {
  std::map<std::string, Thread> threads;
  for (const auto& folder :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", server, "/task"))) {
    std::ifstream status(folder.path() / "status"), times(folder.path() / "schedstat");
    std::string name;
    int64_t sleeps = -1, cpu_ns = -1;
    for (std::string word; status >> word;) {
      if (word == "Name:") status >> name;
      if (word == "voluntary_ctxt_switches:") status >> sleeps;
    }
    times >> cpu_ns;
    if (name == "nexting_thread")
      threads[folder.path()] = {1e-9 * static_cast<double>(cpu_ns), sleeps};
  }
  return threads;
}

double CpuSecondsOfGrpc(pid_t server) {
  double seconds = 0;
  for (const auto& [path, thread] : ThreadsOfGrpc(server)) seconds += thread.cpu_seconds;
  return seconds;
}

struct Idle {
  double cpu_seconds = 0;
  int calls = 0;
};

// Sums the CPU time of gRPC's threads between calls, while these have nothing to do, until it
// reaches `seconds_max` or `calls_max` calls were made.
Idle IdleBetweenCalls(const char* flag, double seconds_max, int calls_max) {
  constexpr absl::Duration kBetweenCalls = absl::Milliseconds(100);
  ServerProcess server({flag});
  client::Client client(server.address());
  Idle idle;
  while (idle.calls < calls_max && idle.cpu_seconds < seconds_max) {
    EXPECT_TRUE(client.ServerInfo().ok());
    ++idle.calls;
    const double before = CpuSecondsOfGrpc(server.pid());
    absl::SleepFor(kBetweenCalls);
    idle.cpu_seconds += CpuSecondsOfGrpc(server.pid()) - before;
  }
  return idle;
}

TEST(PollingTest, TakesTimeAfterARequestWhereItIsAskedFor) {
  // One call suffices if nobody else wants a core; other work goes first.
  constexpr double kAwakeSeconds = 0.05;
  constexpr int kCallsMax = 500;
  const Idle awake = IdleBetweenCalls("--busy_poll_us=100000", kAwakeSeconds, kCallsMax);
  EXPECT_GE(awake.cpu_seconds, kAwakeSeconds);
  const Idle asleep = IdleBetweenCalls("--busy_poll_us=0", kAwakeSeconds, awake.calls);
  EXPECT_LT(asleep.cpu_seconds, kAwakeSeconds / 2);
}

// Counts the gRPC threads that ran during the calls. At each event one polling thread wakes the
// next of them; a thread that does not poll sleeps throughout.
int ThreadsAtWork(const ServerProcess& server, client::Client* client, int64_t elements) {
  constexpr int kCalls = 300;
  const std::map<std::string, Thread> before = ThreadsOfGrpc(server.pid());
  const std::vector<float> values(static_cast<size_t>(elements), 0.5f);
  for (int i = 0; i < kCalls; ++i)
    EXPECT_TRUE(client->Gelu(client::Tensor::FromFloats({elements}, values)).ok());
  int at_work = 0;
  for (const auto& [path, thread] : ThreadsOfGrpc(server.pid()))
    if (thread.sleeps > before.at(path).sleeps) ++at_work;
  return at_work;
}

TEST(PollingTest, FewOfGrpcsThreadsWaitForSmallRequestsAndMoreForLargeOnes) {
  constexpr int64_t kSmall = 16;
  constexpr int64_t kLarge = 64 << 10;  // 256 KiB, and as much of the answer
  ServerProcess server({"--pollers=1"});
  client::Client client(server.address());
  EXPECT_TRUE(Eventually([&] { return ThreadsAtWork(server, &client, kSmall) == 1; }));
  EXPECT_TRUE(Eventually([&] { return ThreadsAtWork(server, &client, kLarge) > 1; }));
  EXPECT_TRUE(Eventually([&] { return ThreadsAtWork(server, &client, kSmall) == 1; }));
}

}  // namespace
}  // namespace warpcall::testing
