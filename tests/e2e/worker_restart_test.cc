// The real server with two worker processes, which die.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

class WorkerRestartTest : public ::testing::Test {
 protected:
  // Ends the process that serves the device.
  void Kill(const std::string& device) {
    pid_t worker = -1;
    const std::string word = absl::StrCat("--device=", device);
    // One that has just ended has no command line any more.
    ASSERT_TRUE(Eventually([&] { return (worker = ChildWith(server_.pid(), word)) > 0; }));
    ASSERT_EQ(kill(worker, SIGKILL), 0);
  }

  Reply ExecuteOn(const std::string& device, v1::ExecuteRequest request) {
    request.set_device(device);
    return Execute(channel_, request);
  }

  double Gauge(const std::string& name, const std::string& device) const {
    return server_.Sum(name, {absl::StrCat("device=\"", device, "\"")});
  }

  bool ListedHealthy(const std::string& device) const {
    const auto stub = v1::KernelService::NewStub(channel_);
    grpc::ClientContext context;
    v1::ListDevicesResponse devices;
    EXPECT_TRUE(stub->ListDevices(&context, {}, &devices).ok());
    for (const v1::DeviceInfo& info : devices.devices())
      if (info.name() == device) return info.healthy();
    ADD_FAILURE() << "no device " << device;
    return false;
  }

  bool AwaitRestarts(const std::string& device, int count) const {
    return Eventually([&] {
      return Gauge("warpcall_worker_restarts_total", device) == count &&
             Gauge("warpcall_device_healthy", device) == 1;
    });
  }

  ServerProcess server_{FlagsForHeld({"--test_cpu_workers=2", "--lanes_per_device=1"})};
  const std::shared_ptr<grpc::Channel> channel_ = Connect(server_.address());
  const v1::ExecuteRequest small_ = Request("gelu", {FloatTensor(1000)});
};

TEST_F(WorkerRestartTest, AKilledWorkerIsReplacedAndOnlyItsRequestsEnd) {
  EXPECT_EQ(Gauge("warpcall_worker_restarts_total", "cpu:1"), 0);
  Gate gate;
  v1::ExecuteRequest request = gate.HeldRequest();
  request.set_device("cpu:1");
  PendingCall held(server_, request);
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server_); }));
  Kill("cpu:1");
  EXPECT_EQ(held.Code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(absl::StrContains(held.Wait().error_message(), "cpu:1: the worker process is gone"))
      << held.Wait().error_message();
  EXPECT_TRUE(ExecuteOn("cpu:0", small_).status.ok());
  ASSERT_TRUE(AwaitRestarts("cpu:1", 1)) << server_.log();
  EXPECT_TRUE(ListedHealthy("cpu:1"));
  const Reply after = ExecuteOn("cpu:1", small_);
  EXPECT_TRUE(after.status.ok()) << after.CodeAndMessage();
  EXPECT_EQ(after.response.device(), "cpu:1");
  EXPECT_EQ(server_.Sum("warpcall_rejected_total", {"device_lost"}), 1);
  EXPECT_EQ(server_.Get("/readyz").first, 200);
  EXPECT_EQ(server_.Stop(), 0);
}

TEST_F(WorkerRestartTest, ThreeDeathsWithinAMinuteAreALossAndAllLostEndTheServer) {
  for (int restarts = 1; restarts <= 2; ++restarts) {
    Kill("cpu:1");
    ASSERT_TRUE(AwaitRestarts("cpu:1", restarts)) << server_.log();
  }
  Kill("cpu:1");
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(ExecuteOn("cpu:1", small_).status.error_message(),
                             "cpu:1: the device was lost");
  }));
  EXPECT_EQ(Gauge("warpcall_device_healthy", "cpu:1"), 0);
  EXPECT_EQ(Gauge("warpcall_worker_restarts_total", "cpu:1"), 2);
  EXPECT_FALSE(ListedHealthy("cpu:1"));
  EXPECT_EQ(server_.Get("/readyz").first, 200);
  for (int restarts = 1; restarts <= 2; ++restarts) {
    Kill("cpu:0");
    ASSERT_TRUE(AwaitRestarts("cpu:0", restarts)) << server_.log();
    EXPECT_TRUE(Execute(channel_, small_).status.ok());
  }
  Kill("cpu:0");  // while no request is there to find out
  EXPECT_EQ(server_.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(server_.log(), "the devices were lost")) << server_.log();
}

}  // namespace
}  // namespace warpcall::testing
