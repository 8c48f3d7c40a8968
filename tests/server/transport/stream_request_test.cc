#include "server/transport/stream_request.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/identity/identity.h"
#include "kernels/registry.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall {
namespace {

// Takes a part of the sizes, and is preferred for these.
Implementation HundredsRow() {
  return {.name = "three_hundreds",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "",
          .data_types = {DataType::kFloat32},
          .supports =
              [](const Problem& problem, const DeviceProperties&) {
                return problem.inputs[0].elements() % 300 == 0
                           ? absl::OkStatus()
                           : absl::UnimplementedError("takes multiples of 300");
              },
          .workspace_bytes = nullptr,
          .launch = [](const Problem&, const Operands&,
                       const LaunchContext&) { return absl::OkStatus(); },
          .shape = nullptr};
}

class TraceKeeper final : public MetricsSink {
 public:
  void Record(const RequestTrace& trace) override { traces.push_back(trace); }
  void RecordInspection(Inspection, absl::StatusCode, RejectReason) override {}
  void NoteAchievedOccupancy(int, int, double) override {}

  std::vector<RequestTrace> traces;
};

class StreamRequestTest : public ::testing::Test {
 protected:
  StreamRequestTest() {
    registry_.Add(IdentityOp(), {HundredsRow()});
    AddCpuKernels(&registry_);
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<CpuDevice>(1));
    EngineOptions options;
    options.staging_bytes = 1 << 20;
    engine_ = *Engine::Create(registry_, std::move(devices), options);
    deps_.registry = &registry_;
    deps_.engine = engine_.get();
    deps_.metrics = &metrics_;
    deps_.clock = [this] { return now_ns_; };
    deps_.message_bytes_max = 1 << 20;
    header_.set_kernel("identity");
    header_.set_request_id("r");
    v1::Tensor* input = header_.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(1000);
  }

  absl::Status Open(StreamRequest* request) {
    bytes_ = header_.SerializeAsString();
    wire::FragmentedBytes fragments;
    fragments.Append(bytes_);
    return request->Open(fragments);
  }

  int64_t now_ns_ = 1'000'000'000;
  Registry registry_;
  std::unique_ptr<Engine> engine_;
  TraceKeeper metrics_;
  ExecuteDeps deps_{};
  v1::ExecuteRequest header_;
  std::string bytes_;
  grpc::CallbackServerContext context_;
};

TEST_F(StreamRequestTest, AFailureAfterTheHeaderWasAnsweredTookUntilTheFailure) {
  StreamRequest request(&deps_, &context_);
  ASSERT_TRUE(Open(&request).ok());
  now_ns_ += 1'000;
  v1::ExecuteResponse answer;
  request.DescribeOutputs(&answer);
  now_ns_ += 2'000'000;
  request.End(absl::InvalidArgumentError("a chunk that does not belong"));
  ASSERT_EQ(metrics_.traces.size(), 1u);
  EXPECT_EQ(metrics_.traces[0].total_ns, 2'001'000);
  EXPECT_EQ(metrics_.traces[0].code, absl::StatusCode::kInvalidArgument);
}

TEST_F(StreamRequestTest, TheHeaderOfTheAnswerSaysWhoAnswersAndWhatComes) {
  StreamRequest request(&deps_, &context_);
  ASSERT_TRUE(Open(&request).ok());
  v1::ExecuteResponse answer;
  request.DescribeOutputs(&answer);
  EXPECT_EQ(answer.request_id(), "r");
  EXPECT_EQ(answer.device(), "cpu");
  EXPECT_NE(answer.implementation(), "");
  EXPECT_FALSE(answer.has_timing());
  EXPECT_FALSE(answer.has_launch());
  ASSERT_EQ(answer.outputs_size(), 1);
  EXPECT_EQ(answer.outputs(0).data_type(), v1::DATA_TYPE_FLOAT32);
  ASSERT_EQ(answer.outputs(0).shape_size(), 1);
  EXPECT_EQ(answer.outputs(0).shape(0), 1000);
}

TEST_F(StreamRequestTest, TheRowTakesEveryWindowTheShorterLastOneToo) {
  deps_.stream_window_bytes = 2400;  // 300 elements in, 300 out
  const auto implementation = [&](int64_t elements) {
    header_.mutable_inputs(0)->set_shape(0, elements);
    StreamRequest request(&deps_, &context_);
    EXPECT_TRUE(Open(&request).ok());
    v1::ExecuteResponse answer;
    request.DescribeOutputs(&answer);
    request.End(absl::CancelledError("enough"));
    return answer.implementation();
  };
  EXPECT_EQ(implementation(900), "three_hundreds");
  EXPECT_NE(implementation(1000), "three_hundreds");
  header_.set_implementation("three_hundreds");
  StreamRequest request(&deps_, &context_);
  const absl::Status status = Open(&request);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("takes float32[300] and float32[100]"), absl::string_view::npos)
      << status;
  request.End(status);
}

TEST_F(StreamRequestTest, TheTotalOfASuccessIsWhatTheClientIsTold) {
  StreamRequest request(&deps_, &context_);
  ASSERT_TRUE(Open(&request).ok());
  now_ns_ += 5'000;
  v1::ExecuteResponse answer;
  request.Describe(&answer);
  now_ns_ += 3'000;
  request.End(absl::OkStatus());
  ASSERT_EQ(metrics_.traces.size(), 1u);
  EXPECT_EQ(answer.timing().total_ns(), 5'000);
  EXPECT_EQ(metrics_.traces[0].total_ns, 5'000);
}

}  // namespace
}  // namespace warpcall
