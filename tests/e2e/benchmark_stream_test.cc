// BenchmarkStream through the real server, and the bounds of a Benchmark's time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "tests/programs.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

class BenchmarkStreamTest : public ::testing::Test {
 protected:
  grpc::Status Benchmark(const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    grpc::ClientContext context;
    return stub_->Benchmark(&context, request, response);
  }
  // Child of the call with a trace context; the server's own bandwidth measurement has none.
  pid_t Child() const { return ChildWith(server_.pid(), "--traceparent="); }

  ServerProcess server_{FlagsForHeld()};
  std::unique_ptr<v1::KernelService::Stub> stub_ =
      v1::KernelService::NewStub(Connect(server_.address()));
};

// Everything that a BenchmarkStream returned.
struct StreamReply {
  std::vector<v1::BenchmarkResponse> responses;
  grpc::Status status;

  std::vector<std::string> Implementations() const {
    std::vector<std::string> names;
    for (const v1::BenchmarkResponse& response : responses)
      for (const v1::BenchmarkResult& result : response.results())
        names.push_back(result.launch().variant());
    return names;
  }
};

StreamReply ReadStream(v1::KernelService::Stub* stub, const v1::BenchmarkRequest& request) {
  StreamReply reply;
  grpc::ClientContext context;
  const auto reader = stub->BenchmarkStream(&context, request);
  v1::BenchmarkResponse response;
  while (reader->Read(&response)) reply.responses.push_back(response);
  reply.status = reader->Finish();
  return reply;
}

TEST_F(BenchmarkStreamTest, AStreamBringsEachResultOnceAndTheConditionsLast) {
  // The slow row takes so long that a single disturbance of the fast row cannot make the fast row
  // slower.
  v1::BenchmarkRequest request =
      BenchmarkOf("gelu", {{ProgramsAreSanitized() ? 1'000'000 : 16'000'000}});
  for (const char* const name : {"float64", "simd_fused", "vector"}) {
    request.add_implementations(name);
  }
  request.set_iterations(3);
  request.set_seed(7);
  const StreamReply reply = ReadStream(stub_.get(), request);
  EXPECT_EQ(reply.status.error_code(), grpc::NOT_FOUND) << reply.status.error_message();
  *request.mutable_implementations()->rbegin() = "cpu";
  const StreamReply right = ReadStream(stub_.get(), request);
  ASSERT_TRUE(right.status.ok()) << right.status.error_message();
  // A quiet machine has the order of their speeds: RoundsTest checks it with its own clock.
  EXPECT_THAT(right.Implementations(), ::testing::UnorderedElementsAre("simd_fused", "float64"));
  ASSERT_GE(right.responses.size(), 2u);
  EXPECT_GT(right.responses[0].results(0).fraction_of_ceiling(), 0);
  const v1::BenchmarkResponse& last = right.responses.back();
  EXPECT_EQ(last.results_size(), 0);
  // Neither row is ranked before both are known. On a machine so busy that both are unstable,
  // neither is ranked at all.
  bool any_stable = false;
  for (const v1::BenchmarkResponse& part : right.responses) {
    for (const v1::BenchmarkResult& result : part.results()) {
      EXPECT_EQ(result.verdict(), "");
      any_stable |= !result.unstable();
    }
  }
  EXPECT_EQ(last.verdicts().empty(), !any_stable);
  EXPECT_EQ(last.device(), "cpu");
  EXPECT_GT(last.ceiling_bytes_per_second(), 1e8);
  EXPECT_GT(last.flops_ceiling(), 1e8);
  EXPECT_NE(last.stamp().device_description(), "");
  EXPECT_EQ(last.stamp().driver() + last.stamp().cuda(), "");  // the CPU has none
  EXPECT_EQ(last.stamp().throttle_reasons_size(), 0);          // however busy it is
  EXPECT_NE(last.stamp().server_version(), "");
  EXPECT_EQ(last.stamp().seed(), 7u);
  EXPECT_GT(last.stamp().started_unix_ns(), int64_t{1'700'000'000} * 1'000'000'000);
  EXPECT_EQ(server_.Sum("warpcall_inspections_total", {"method=\"benchmark\"", "code=\"OK\""}), 1);
}

// Fast rows are not lost with one that has no end: they are there while it runs.
TEST_F(BenchmarkStreamTest, AStreamsClientThatGoesEndsTheProcess) {
  v1::BenchmarkRequest request = BenchmarkOf("broken", {{16}});
  for (const char* const name : {"absent", "endless"}) request.add_implementations(name);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  const auto reader = stub_->BenchmarkStream(&context, request);
  v1::BenchmarkResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_EQ(response.results_size(), 1);
  EXPECT_EQ(response.results(0).launch().variant(), "absent");
  EXPECT_NE(response.results(0).error(), "");
  EXPECT_GT(Child(), 0);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return Child() < 0; }));
  EXPECT_TRUE(Benchmark(BenchmarkOf("gelu", {{16}}), &response).ok());
}

// 270 GFLOP: seconds for the fastest rows, half an hour for the slowest.
TEST_F(BenchmarkStreamTest, SlowRowsAreSkippedAndTheCallEndsInTime) {
  v1::BenchmarkRequest request = BenchmarkOf("matmul", {{4096, 8192}, {8192, 4096}});
  request.add_implementations("float64");
  request.set_timeout_ns(100'000'000);
  v1::BenchmarkResponse response;
  const grpc::Status status = Benchmark(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.results_size(), 1);
  const v1::BenchmarkResult& result = response.results(0);
  EXPECT_GT(result.predicted_ns(), 1e9);
  EXPECT_THAT(result.error(), HasSubstr("at least 2 launches must fit into 0.1 s; name the "
                                        "implementation and raise timeout_ns (--timeout) to "));
  EXPECT_EQ(result.median_ns(), 0);
  EXPECT_EQ(result.iterations(), 0);
}

}  // namespace
}  // namespace warpcall::testing
