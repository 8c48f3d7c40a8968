// Environment that sets OpenMP's waiting in the processes of a real server.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "absl/strings/match.h"
#include "tests/e2e/children.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {
namespace {

// Environment of the worker of a server that is started with `policy`.
std::string EnvironmentOfWorker(const char* policy) {
  unsetenv("GOMP_SPINCOUNT");
  unsetenv("OMP_WAIT_POLICY");
  if (policy != nullptr) setenv("OMP_WAIT_POLICY", policy, 1);
  ServerProcess server(FlagsForHeld({"--test_cpu_workers=1"}));
  unsetenv("OMP_WAIT_POLICY");
  const pid_t worker = ChildWith(server.pid(), "--device=cpu:0");
  EXPECT_GT(worker, 0);
  return ReadProcFile(worker, "environ");
}

TEST(OpenMpSpinsTest, AreFewInProcessesThatTheServerStarts) {
  EXPECT_TRUE(absl::StrContains(EnvironmentOfWorker(nullptr), "GOMP_SPINCOUNT=1000"));
}

TEST(OpenMpSpinsTest, AreTheUsersWhoSaysHowToWait) {
  const std::string environment = EnvironmentOfWorker("active");
  EXPECT_TRUE(absl::StrContains(environment, "OMP_WAIT_POLICY=active"));
  EXPECT_FALSE(absl::StrContains(environment, "GOMP_SPINCOUNT"));
}

}  // namespace
}  // namespace warpcall::testing
