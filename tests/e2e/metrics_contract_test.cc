// Checks a real server's /metrics against the contract.
#include "tests/server/metrics/metrics_contract.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/temp_folder.h"

namespace warpcall::testing {
namespace {

TEST(MetricsContract, HoldsBeforeTheFirstRequestAndAfterSome) {
  const TempFolder folder;  // a file that may be read again, so that its failures are counted
  const std::string policies = folder.Path("policies.json");
  std::ofstream(policies) << R"({"default": {}})";
  ServerProcess server({"--devices=cpu", "--policy_file=" + policies});
  ExpectContract(ParseMetricsText(server.Get("/metrics").second), {});
  const auto channel = Connect(server.address());
  EXPECT_TRUE(Execute(channel, Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_FALSE(Execute(channel, Request("nope", {FloatTensor(4)})).status.ok());
  // The answer may come before its count.
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_requests_total") == 2; }));
  ExpectContract(ParseMetricsText(server.Get("/metrics").second), {.runs = true});
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
