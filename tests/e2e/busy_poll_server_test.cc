// A real server that looks for the next request awake.
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "tests/e2e/children.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {
namespace {

constexpr int kCalls = 50;
constexpr absl::Duration kBetweenCalls = absl::Milliseconds(100);

// Of the server, in the time between calls, when it has nothing to do: until it is as much as
// `seconds_max`, or all calls were made.
double IdleCpuSeconds(const char* flag, double seconds_max) {
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

TEST(BusyPollTest, TakesTimeAfterARequestWhereItIsAskedFor) {
  // 2.5 s where nobody else wants a core.
  constexpr double kAwakeSeconds = 0.25;
  EXPECT_GE(IdleCpuSeconds("--busy_poll_us=50000", kAwakeSeconds), kAwakeSeconds);
  EXPECT_LT(IdleCpuSeconds("--busy_poll_us=0", kAwakeSeconds), kAwakeSeconds);
}

}  // namespace
}  // namespace warpcall::testing
