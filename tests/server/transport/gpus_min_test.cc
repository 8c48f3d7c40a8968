// The number of GPUs that a server needs to be ready.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/transport/server.h"
#include "tests/server/fake_device.h"
#include "tests/server/small_op.h"

namespace warpcall {
namespace {

using testing::FakeDevice;

class GpusMinTest : public ::testing::Test {
 protected:
  GpusMinTest() {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<FakeDevice>(&gpus_[0], "cuda:0", DeviceKind::kCuda));
    devices.push_back(std::make_unique<FakeDevice>(&gpus_[1], "cuda:1", DeviceKind::kCuda));
    devices.push_back(std::make_unique<FakeDevice>(&cpu_, "cpu"));
    EngineOptions options;
    options.staging_bytes = 1 << 20;
    engine_ = *Engine::Create(registry_, std::move(devices), options);
    deps_.engine = engine_.get();
  }

  FakeDevice::Control gpus_[2], cpu_;
  Registry registry_;
  std::unique_ptr<Engine> engine_;
  ExecuteDeps deps_{.registry = &registry_, .clock = MonotonicNs};
};

TEST_F(GpusMinTest, IsReadyWhileAsManyGpusWork) {
  deps_.limits.gpus_min = 2;
  EXPECT_TRUE(CheckReady(deps_).ok());
  gpus_[0].lost = true;
  EXPECT_EQ(CheckReady(deps_), absl::UnavailableError("GPUs that work: 1; at least: 2 (gpus_min)"));
  deps_.limits.gpus_min = 1;
  EXPECT_TRUE(CheckReady(deps_).ok());
}

TEST_F(GpusMinTest, TakesTheCpuForNoGpu) {
  deps_.limits.gpus_min = 3;
  EXPECT_EQ(CheckReady(deps_), absl::UnavailableError("GPUs that work: 2; at least: 3 (gpus_min)"));
}

TEST_F(GpusMinTest, AsksForNoneByDefault) {
  gpus_[0].lost = gpus_[1].lost = true;
  EXPECT_TRUE(CheckReady(deps_).ok());
}

TEST_F(GpusMinTest, HealthFollowsTheGpus) {
  using grpc::health::v1::HealthCheckResponse;
  deps_.limits.gpus_min = 2;
  const auto server = GrpcServer::Start({"127.0.0.1:0"}, &deps_);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel((*server)->addresses().at(0), grpc::InsecureChannelCredentials()));
  const auto status = [&] {
    grpc::ClientContext context;
    HealthCheckResponse response;
    EXPECT_TRUE(health->Check(&context, {}, &response).ok());
    return response.status();
  };
  EXPECT_EQ(status(), HealthCheckResponse::SERVING);
  for (const bool lost : {true, false}) {
    gpus_[0].lost = lost;
    (*server)->RunPeriodicChecks();
    EXPECT_EQ(status(), lost ? HealthCheckResponse::NOT_SERVING : HealthCheckResponse::SERVING);
  }
}

}  // namespace
}  // namespace warpcall
