#include "server/transport/stream_request.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "kernels/registry.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/transport/caller.h"
#include "tests/server/small_op.h"
#include "tests/temp_folder.h"

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
          .plan = PlanBy([](const Problem&, const Operands&, const LaunchContext&) {
            return absl::OkStatus();
          })};
}

const Op& SharingOp() {
  static const Op& op = testing::NewSharingOp("sharing");
  return op;
}

Implementation AnyRow() {
  Implementation row = HundredsRow();
  row.name = "any";
  row.supports = SupportsAll;
  return row;
}

class TraceKeeper final : public MetricsSink {
 public:
  void Record(const RequestTrace& trace) override { traces.push_back(trace); }
  void RecordTransfer(const RequestTrace&) override {}
  void RecordInspection(const InspectionEnd&) override {}
  void RecordInspectionUse(const InspectionUse&) override {}
  void RecordPush(Finding) override {}
  void RecordPushStage(PushStage, int64_t) override {}
  void SetAchievedOccupancy(int, int, double) override {}
  void RecordRefusedConnection() override {}

  std::vector<RequestTrace> traces;
};

class StreamRequestTest : public ::testing::Test {
 protected:
  StreamRequestTest() {
    registry_.Add(IdentityOp(), {HundredsRow()});
    registry_.Add(SharingOp(), {AnyRow()});
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
    deps_.limits.message_bytes_max = 1 << 20;
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
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
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

// However long gRPC keeps the call: the next may come as soon as the answer is there.
TEST_F(StreamRequestTest, WhatHasEndedIsNotInFlightAnyMore) {
  const testing::TempFolder folder;
  std::ofstream(folder.Path("policies"))
      << R"({"default": {"requests_in_flight_max": 1, "bytes_in_flight_max": 8000}})";
  const auto policies = Policies::Open(folder.Path("policies"), MethodNames());
  ASSERT_TRUE(policies.ok()) << policies.status();
  Gate gate(Gate::Options{.policies = policies->get()});
  deps_.gate = &gate;
  const Principal caller = ConnectionPrincipal("test");
  StreamRequest first(&deps_, &context_, caller), second(&deps_, &context_, caller);
  ASSERT_TRUE(Open(&first).ok());  // 1000 elements there and back
  const absl::Status refused = Open(&second);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  second.End(refused);
  EXPECT_EQ(metrics_.traces.back().reject_reason, RejectReason::kQuota);
  first.End(absl::OkStatus());
  StreamRequest third(&deps_, &context_, caller);
  EXPECT_TRUE(Open(&third).ok());
  third.End(absl::OkStatus());
}

TEST_F(StreamRequestTest, WhatHasEndedHoldsNoTensors) {
  Residents& residents = engine_->residents();
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"),
                        Request::Kind::kTransfer);
  const std::string handle = [&] {
    const auto content =
        residents.Reserve(request.request().owner(), {DataType::kFloat32, {1000}}, 0);
    return residents.Name(*content, {})->handle;
  }();
  const absl::Status opened = request.OpenGet(handle);
  ASSERT_TRUE(opened.ok()) << opened;
  request.End(absl::OkStatus());
  const absl::string_view name = handle;
  residents.Free(request.request().owner().name, absl::MakeConstSpan(&name, 1));
  EXPECT_EQ(residents.usage(0).bytes, 0);
}

TEST_F(StreamRequestTest, TheHeaderOfTheAnswerSaysWhoAnswersAndWhatComes) {
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
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
  deps_.limits.stream_window_bytes = 2400;  // 300 elements in, 300 out
  const auto variant = [&](int64_t elements) {
    header_.mutable_inputs(0)->set_shape(0, elements);
    StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
    EXPECT_TRUE(Open(&request).ok());
    v1::ExecuteResponse answer;
    request.DescribeOutputs(&answer);
    request.End(absl::CancelledError("enough"));
    const auto row = static_cast<size_t>(metrics_.traces.back().row);
    EXPECT_EQ(answer.implementation(), FamilyName(registry_.rows()[row].implementation.family));
    return std::string(registry_.rows()[row].implementation.name);
  };
  EXPECT_EQ(variant(900), "three_hundreds");
  EXPECT_NE(variant(1000), "three_hundreds");
  header_.set_implementation("three_hundreds");
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
  const absl::Status status = Open(&request);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("takes float32[300] and float32[100]"), absl::string_view::npos)
      << status;
  request.End(status);
}

TEST_F(StreamRequestTest, TheTotalOfASuccessIsWhatTheClientIsTold) {
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
  ASSERT_TRUE(Open(&request).ok());
  now_ns_ += 5'000;
  v1::ExecuteResponse answer;
  ASSERT_TRUE(request.Describe(&answer).ok());
  now_ns_ += 3'000;
  request.End(absl::OkStatus());
  ASSERT_EQ(metrics_.traces.size(), 1u);
  EXPECT_EQ(answer.timing().total_ns(), 5'000);
  EXPECT_EQ(metrics_.traces[0].total_ns, 5'000);
}

// x[rows, 100] and weight[columns], all float32.
class SharedInputTest : public StreamRequestTest {
 protected:
  absl::Status OpenShared(StreamRequest* request, int64_t rows, int64_t columns) {
    header_.set_kernel("sharing");
    header_.clear_inputs();
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{rows, 100}, {columns}}) {
      v1::Tensor* input = header_.add_inputs();
      input->set_data_type(v1::DATA_TYPE_FLOAT32);
      for (const int64_t dimension : shape) input->add_shape(dimension);
    }
    return Open(request);
  }

  absl::Status Add(StreamRequest* request, int32_t input, int64_t offset, int64_t bytes) {
    const Slices slices = {grpc::Slice(static_cast<size_t>(bytes))};
    wire::ChunkView chunk;
    chunk.input_index = input;
    chunk.offset = offset;
    chunk.data.Append({reinterpret_cast<const char*>(slices[0].begin()), slices[0].size()});
    return request->Add(chunk, slices);
  }

  static size_t SizeOf(const Slices& slices) {
    size_t size = 0;
    for (const grpc::Slice& slice : slices) size += slice.size();
    return size;
  }
};

TEST_F(SharedInputTest, NoWindowRunsBeforeItAndEachHasAllOfIt) {
  deps_.limits.stream_window_bytes = 44'000;  // 100 rows of x and of the output
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
  ASSERT_TRUE(OpenShared(&request, 250, 10).ok());
  ASSERT_TRUE(Add(&request, 0, 0, 40'000).ok());
  EXPECT_EQ(request.TakeWindow(), nullptr);
  ASSERT_TRUE(Add(&request, 1, 0, 40).ok());
  std::vector<std::unique_ptr<Window>> windows;
  windows.push_back(request.TakeWindow());
  ASSERT_NE(windows[0], nullptr);
  EXPECT_EQ(request.TakeWindow(), nullptr);
  ASSERT_TRUE(Add(&request, 0, 40'000, 60'000).ok());
  for (int i = 0; i < 2; ++i) windows.push_back(request.TakeWindow());
  EXPECT_EQ(request.TakeWindow(), nullptr);
  EXPECT_TRUE(request.CheckComplete().ok());
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_NE(windows[i], nullptr);
    EXPECT_EQ(SizeOf(windows[i]->inputs[0]), i < 2 ? 40'000u : 20'000u);
    ASSERT_EQ(windows[i]->inputs[1].size(), 1u);
    // Shares the bytes instead of copying them.
    EXPECT_EQ(windows[i]->inputs[1][0].begin(), windows[0]->inputs[1][0].begin());
    EXPECT_EQ(request.OutputOffset(*windows[i], 0), static_cast<int64_t>(i) * 4'000);
    const std::unique_ptr<Job> job = request.JobOf(windows[i].get());
    EXPECT_EQ(job->input_bytes, static_cast<int64_t>(SizeOf(windows[i]->inputs[0])) + 40);
  }
  request.End(absl::CancelledError("enough"));
}

TEST_F(SharedInputTest, WindowsHaveFourTimesAsMuchOfTheirOwn) {
  deps_.limits.stream_window_bytes = 1000;
  StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
  ASSERT_TRUE(OpenShared(&request, 400, 100).ok());  // 320 kB beside 400 bytes
  ASSERT_TRUE(Add(&request, 1, 0, 400).ok());
  ASSERT_TRUE(Add(&request, 0, 0, 160'000).ok());
  const std::unique_ptr<Window> window = request.TakeWindow();
  ASSERT_NE(window, nullptr);
  EXPECT_EQ(SizeOf(window->inputs[0]), 800u);
  request.End(absl::CancelledError("enough"));
}

// A window of four times the shared bytes may exceed the limit of a request.
TEST_F(SharedInputTest, WindowsAreRequestsThatFit) {
  const auto rows_of_a_window = [&](int64_t columns) -> size_t {
    StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
    const absl::Status status = OpenShared(&request, 4'000, columns);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return 0;
    EXPECT_TRUE(Add(&request, 1, 0, 4 * columns).ok());
    EXPECT_TRUE(Add(&request, 0, 0, 1'600'000).ok());
    const std::unique_ptr<Window> window = request.TakeWindow();
    const size_t rows = window == nullptr ? 0 : SizeOf(window->inputs[0]) / 400;
    request.End(absl::CancelledError("enough"));
    return rows;
  };
  deps_.limits.stream_window_bytes = 1'000;
  EXPECT_EQ(rows_of_a_window(1'000), 3u);  // 400 bytes and 4000 of the output
  // A row has 40'400 bytes: three rows reach four times the shared bytes.
  EXPECT_EQ(rows_of_a_window(10'000), 3u);
  deps_.limits.message_bytes_max = 100'000;
  EXPECT_EQ(rows_of_a_window(10'000), 2u);
  deps_.limits.message_bytes_max = 1 << 20;
  // 1 MiB of staging less 240'000 shared bytes: half of the rest is less than two rows.
  EXPECT_EQ(rows_of_a_window(60'000), 1u);
}

// A client that always sends an equal share of all inputs does so.
TEST_F(SharedInputTest, MayComeLastInProblemsThatExecuteTakes) {
  deps_.limits.message_bytes_max = int64_t{100} << 20;
  for (const int64_t mib : {80, 120}) {
    deps_.limits.stream_window_bytes = 1 << 20;
    StreamRequest request(&deps_, &context_, ConnectionPrincipal("test"));
    ASSERT_TRUE(OpenShared(&request, (mib << 20) / 400, 1).ok());
    absl::Status status;
    for (int64_t offset = 0; status.ok() && offset < (mib - 1) << 20; offset += 1 << 20) {
      status = Add(&request, 0, offset, 1 << 20);
      if (status.ok()) status = request.CheckHeld();
    }
    EXPECT_EQ(status.ok(), mib < 100) << status;
    request.End(status);
  }
}

}  // namespace
}  // namespace warpcall
