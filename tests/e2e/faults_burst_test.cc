// Ten times more requests at once than may wait: each is done or told when to come back, and those
// of other connections do not suffer for it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/fault_process.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/steady_clients.h"

namespace warpcall::testing {
namespace {

constexpr int kQueueLimit = 20;
constexpr int kBurst = 10 * kQueueLimit;
// Between bursts, so that what is measured is the queue and not how busy the machine is.
constexpr int kPauseMs = 100;

void ExpectBurstsAreHarmless(int connections) {
  ServerProcess server({absl::StrCat("--queue_limit=", kQueueLimit), "--log_level=error"});
  SteadyClients others(server.address());
  const std::string refusal = absl::StrCat("the limit is ", kQueueLimit, " (queue_limit)");
  const std::vector<std::string> bursts = {"burst",
                                           server.address(),
                                           absl::StrCat(connections),
                                           absl::StrCat(kBurst),
                                           absl::StrCat(kPauseMs),
                                           refusal};
  std::vector<int> totals(3);
  // Printed, not asserted: receiving, refusing and answering 200 requests of 32 KiB takes two cores
  // some milliseconds, in which whoever else comes waits for gRPC's two threads: 5 to 10 times the
  // undisturbed p99 on such a machine.
  DisturbanceRatio(
      &others, [&] { return std::make_shared<FaultProcess>(bursts, &totals); },
      [] { return true; });
  const int done = totals[0];
  const int refused = totals[1];
  EXPECT_EQ(totals[2], 0) << "were refused with another code or text, or not told when to retry";
  EXPECT_GT(refused, 0);
  EXPECT_GT(done, 0);
  EXPECT_EQ((done + refused) % kBurst, 0);
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"kernel=\"gelu\"", "code=\"OK\""}), done);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"queue_requests\""}), refused);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), others.sent() + done + refused);
  EXPECT_EQ(server.Sum("warpcall_queue_depth"), 0);
  EXPECT_EQ(server.Stop(), 0);
}

TEST(FaultsBurst, TenTimesTheQueueFromOneConnection) { ExpectBurstsAreHarmless(1); }

TEST(FaultsBurst, TenTimesTheQueueFromManyConnections) { ExpectBurstsAreHarmless(10); }

}  // namespace
}  // namespace warpcall::testing
