// Client::Benchmark and Client::Profile against a server whose answers the tests decide. The fields
// of requests and answers are those of the command line's tests (cli/bench, cli/profile).
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "client/cpp/client.h"
#include "tests/client/fake_server.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using testing::FakeAnswer;
using testing::FakeServer;

// More than any call here takes, so that a defect fails a test instead of hanging it.
constexpr absl::Duration kPatience = absl::Seconds(60);

ClientOptions Patient() {
  return {.timeout = kPatience, .sleep = [](absl::Duration) {}};
}

TEST(BenchmarkCallTest, IsTriedAgainOnlyWhereTheServerSaysWhen) {
  std::atomic<int> calls{0};
  FakeServer server(EchoInputs);
  server.AnswerBenchmark([&](const v1::BenchmarkRequest&, v1::BenchmarkResponse*) -> FakeAnswer {
    if (calls.fetch_add(1) == 0) return {absl::ResourceExhaustedError("busy"), "1"};
    return {absl::InvalidArgumentError("iterations is 5000; at most 1000"), std::nullopt};
  });
  Client client(server.address(), Patient());
  const auto report = client.Benchmark({.kernel = "gelu"});
  EXPECT_EQ(report.status(), absl::InvalidArgumentError("iterations is 5000; at most 1000"));
  EXPECT_EQ(calls.load(), 2);
}

TEST(ProfileCallTest, SendsTheCallWithItsTensors) {
  std::string seen;
  FakeServer server(EchoInputs);
  server.AnswerProfile([&](const v1::ProfileRequest& request, v1::ProfileResponse*) {
    seen = testing::Text(request);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto report = client.Profile(
      {.call = {.kernel = "softmax",
                .inputs = {Tensor::FromFloats({1, 2}, {1, 2}),
                           Tensor::Borrow(DataType::kBFloat16, {2}, {"lent", 4})},
                .attributes = {{"axis", int64_t{0}}},
                .options = {.implementation = "cuda", .device = "cuda:0", .request_id = "r-9"}},
       .iterations = 7,
       .trace = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(seen,
            "request { kernel: \"softmax\" implementation: \"cuda\""
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 1 shape: 2"
            " data: \"\\000\\000\\200?\\000\\000\\000@\" }"
            " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 2 data: \"lent\" }"
            " attributes { key: \"axis\" value { int_value: 0 } } device: \"cuda:0\""
            " request_id: \"r-9\" } iterations: 7 trace: true");
}

TEST(ProfileCallTest, TracesOfTensOfMegabytesArrive) {
  const std::string trace(size_t{48} << 20, '7');
  FakeServer server(EchoInputs);
  server.AnswerProfile([&](const v1::ProfileRequest&, v1::ProfileResponse* response) {
    response->set_trace_json(trace);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto report = client.Profile({.call = {.kernel = "gelu"}, .trace = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->trace_json == trace);
}

}  // namespace
}  // namespace warpcall::client
