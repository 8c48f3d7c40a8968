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
#include "tests/e2e/stream_call.h"
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

  // One Put of several messages, without data in its header.
  class Putting {
   public:
    Putting(const std::shared_ptr<grpc::Channel>& channel, const std::string& device,
            const v1::Tensor& tensor)
        : stub_(v1::KernelService::NewStub(channel)), writer_(stub_->Put(&context_, &response_)) {
      v1::PutRequest request;
      *request.mutable_header()->mutable_tensor() = tensor;
      request.mutable_header()->mutable_tensor()->clear_data();
      request.mutable_header()->set_device(device);
      writer_->Write(request);
    }
    void Send(size_t offset, const std::string& data) {
      for (size_t at = 0; at < data.size(); at += kMib) {
        v1::PutRequest request;
        *request.mutable_chunk() =
            ChunkOf(static_cast<int64_t>(offset + at), data.substr(at, kMib)).chunk();
        if (!writer_->Write(request)) return;
      }
    }
    grpc::Status Finish() {
      writer_->WritesDone();
      return writer_->Finish();
    }
    const std::string& handle() const { return response_.handle(); }

   private:
    const std::unique_ptr<v1::KernelService::Stub> stub_;
    grpc::ClientContext context_;
    v1::PutResponse response_;
    const std::unique_ptr<grpc::ClientWriter<v1::PutRequest>> writer_;
  };

  std::string Put(const std::string& device, const v1::Tensor& tensor) {
    Putting put(channel_, device, tensor);
    put.Send(0, tensor.data());
    const grpc::Status status = put.Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return put.handle();
  }

  // gelu of a tensor that stays.
  static v1::ExecuteRequest RequestOf(const std::string& handle) {
    v1::Tensor tensor;
    tensor.set_handle(handle);
    return Request("gelu", {tensor});
  }

  double UsedBytes(const std::string& device) const {
    return server_.Sum("warpcall_resident_bytes",
                       {absl::StrCat("device=\"", device, "\""), "state=\"used\""});
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

TEST_F(WorkerRestartTest, TensorsOfAKilledWorkerAreLostAndOthersStay) {
  const v1::Tensor x = FloatTensor(1000);
  const v1::Tensor y = Execute(channel_, Request("gelu", {x})).response.outputs(0);
  const std::string kept = Put("cpu:0", x);
  const std::string lost = Put("cpu:1", x);
  for (const std::string& handle : {kept, lost}) {
    const Reply reply = Execute(channel_, RequestOf(handle));
    ASSERT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
    EXPECT_EQ(reply.response.device(), handle == kept ? "cpu:0" : "cpu:1");
    EXPECT_TRUE(reply.response.outputs(0).data() == y.data());
  }
  v1::ExecuteRequest both = Request("fused", {});
  (*both.mutable_attributes())["expression"].set_string_value("x0 + x1");
  both.add_inputs()->set_handle(kept);
  both.add_inputs()->set_handle(lost);
  EXPECT_EQ(Execute(channel_, both).CodeAndMessage(),
            "3: input 1 is on cpu:1, but an input before it is on cpu:0");
  v1::ExecuteRequest keep = RequestOf(lost);
  keep.set_keep_outputs(true);
  const std::string result = Execute(channel_, keep).response.outputs(0).handle();
  EXPECT_TRUE(Execute(channel_, RequestOf(result)).status.ok());
  EXPECT_EQ(Gauge("warpcall_resident_tensors", "cpu:1"), 2);

  Kill("cpu:1");
  ASSERT_TRUE(AwaitRestarts("cpu:1", 1)) << server_.log();
  for (const std::string& handle : {lost, result}) {
    const Reply reply = Execute(channel_, RequestOf(handle));
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::NOT_FOUND) << reply.CodeAndMessage();
    EXPECT_EQ(reply.lost_handles, absl::StrCat(handle, " lost"));
  }
  const Reply reply = Execute(channel_, RequestOf(kept));
  ASSERT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
  EXPECT_TRUE(reply.response.outputs(0).data() == y.data());
  EXPECT_EQ(server_.Sum("warpcall_resident_ended_total", {"device=\"cpu:1\"", "why=\"lost\""}), 2);
  EXPECT_EQ(Gauge("warpcall_resident_tensors", "cpu:0"), 1);
  EXPECT_EQ(Gauge("warpcall_resident_tensors", "cpu:1"), 0);
  EXPECT_EQ(UsedBytes("cpu:1"), 0);

  const Reply again = Execute(channel_, RequestOf(Put("cpu:1", x)));
  ASSERT_TRUE(again.status.ok()) << again.CodeAndMessage();
  EXPECT_EQ(again.response.device(), "cpu:1");
  EXPECT_TRUE(again.response.outputs(0).data() == y.data());
  EXPECT_EQ(server_.Stop(), 0);
}

TEST_F(WorkerRestartTest, APutDuringWhichTheWorkerIsKilledLeavesNothing) {
  const v1::Tensor x = FloatTensor(10 << 20);
  const std::string half = x.data().substr(0, x.data().size() / 2);
  Putting put(channel_, "cpu:1", x);
  put.Send(0, half);
  // A window of it has run, or has not: the tensor is lost in either case.
  ASSERT_TRUE(Eventually([&] { return UsedBytes("cpu:1") > 0; }));
  Kill("cpu:1");
  ASSERT_TRUE(AwaitRestarts("cpu:1", 1)) << server_.log();
  put.Send(half.size(), x.data().substr(half.size()));
  const grpc::Status status = put.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_TRUE(Eventually([&] { return UsedBytes("cpu:1") == 0; }));
  EXPECT_TRUE(Execute(channel_, RequestOf(Put("cpu:1", x))).status.ok());
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
