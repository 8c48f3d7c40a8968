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
#include "client/cpp/client.h"
#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {
namespace {

// Of the server, in the time between calls, when it has nothing to do: until it is as much as
// `seconds_max`, or 50 calls were made.
double IdleCpuSeconds(const char* flag, double seconds_max) {
  constexpr int kCalls = 50;
  constexpr absl::Duration kBetweenCalls = absl::Milliseconds(100);
  ServerProcess server({flag});
  client::Client client(server.address());
  double seconds = 0;
  for (int i = 0; i < kCalls && seconds < seconds_max; ++i) {
    EXPECT_TRUE(client.ServerInfo().ok());
    const double before = CpuSecondsOf(server.pid());
    absl::SleepFor(kBetweenCalls);
    seconds += CpuSecondsOf(server.pid()) - before;
  }
  return seconds;
}

TEST(PollingTest, TakesTimeAfterARequestWhereItIsAskedFor) {
  // 2.5 s where nobody else wants a core.
  constexpr double kAwakeSeconds = 0.25;
  EXPECT_GE(IdleCpuSeconds("--busy_poll_us=50000", kAwakeSeconds), kAwakeSeconds);
  EXPECT_LT(IdleCpuSeconds("--busy_poll_us=0", kAwakeSeconds), kAwakeSeconds);
}

// How often each of gRPC's threads has slept.
std::map<std::string, int64_t> SleepsOfGrpc(pid_t server) {
  std::map<std::string, int64_t> sleeps;
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", server, "/task"))) {
    std::ifstream status(thread.path() / "status");
    std::string word, name;
    while (status >> word) {
      if (word == "Name:") status >> name;
      if (word == "voluntary_ctxt_switches:" && name == "nexting_thread")
        status >> sleeps[thread.path()];
    }
  }
  return sleeps;
}

// Of gRPC's threads those that ran while there were so many requests of so many elements: with
// each event one calls the next of those that poll, and one that does not sleeps throughout.
int ThreadsAtWork(const ServerProcess& server, client::Client* client, int64_t elements) {
  constexpr int kCalls = 300;
  const std::map<std::string, int64_t> before = SleepsOfGrpc(server.pid());
  const std::vector<float> values(static_cast<size_t>(elements), 0.5f);
  for (int i = 0; i < kCalls; ++i)
    EXPECT_TRUE(client->Gelu(client::Tensor::FromFloats({elements}, values)).ok());
  int at_work = 0;
  for (const auto& [thread, sleeps] : SleepsOfGrpc(server.pid()))
    if (sleeps > before.at(thread)) ++at_work;
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
