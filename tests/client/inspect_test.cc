// Client::Benchmark and Client::Profile against a server whose answers the tests decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client/fake_server.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using ::testing::ElementsAre;
using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;

// More than any call here takes, so that a defect fails a test instead of hanging it.
constexpr absl::Duration kPatience = absl::Seconds(60);

ClientOptions Patient() {
  return {.timeout = kPatience, .sleep = [](absl::Duration) {}};
}

TEST(BenchmarkCallTest, SendsEveryFieldAndReadsEveryField) {
  v1::BenchmarkRequest seen;
  FakeServer server(EchoInputs);
  server.AnswerBenchmark([&](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    seen = request;
    response->set_device("cuda:0");
    response->set_ceiling_bytes_per_second(4.3e12);
    v1::BenchmarkResult* result = response->add_results();
    result->set_implementation("cudnn_softmax");
    result->set_family("library");
    result->set_mean_ns(11.5);
    result->set_median_ns(10.5);
    result->set_min_ns(9.5);
    result->set_p90_ns(12.5);
    result->set_bytes_per_second(2e12);
    result->set_flops_per_second(3e12);
    result->set_fraction_of_ceiling(0.5);
    result->set_relative_error(1e-6);
    result->mutable_launch()->set_bytes_moved(77);
    result->mutable_launch()->set_waves(1.25);
    result->set_iterations(99);
    result->set_launches_per_iteration(4);
    result->set_checked_elements(1000);
    response->add_results()->set_error("axis is not the last");
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto report = client.Benchmark({.kernel = "softmax",
                                        .implementations = {"cuda", "library"},
                                        .inputs = {{DataType::kBFloat16, {4096, 1024}}},
                                        .attributes = {{"axis", int64_t{-1}}},
                                        .device = "cuda:0",
                                        .warmup_iterations = 3,
                                        .iterations = 50,
                                        .seed = 17});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(seen.kernel(), "softmax");
  EXPECT_THAT(seen.implementations(), ElementsAre("cuda", "library"));
  ASSERT_EQ(seen.inputs_size(), 1);
  EXPECT_EQ(seen.inputs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_THAT(seen.inputs(0).shape(), ElementsAre(4096, 1024));
  EXPECT_EQ(seen.attributes().at("axis").int_value(), -1);
  EXPECT_EQ(seen.device(), "cuda:0");
  EXPECT_EQ(seen.warmup_iterations(), 3);
  EXPECT_EQ(seen.iterations(), 50);
  EXPECT_EQ(seen.seed(), 17u);

  EXPECT_EQ(report->device, "cuda:0");
  EXPECT_EQ(report->ceiling_bytes_per_second, 4.3e12);
  ASSERT_EQ(report->results.size(), 2u);
  const BenchmarkResult& result = report->results[0];
  EXPECT_EQ(result.implementation, "cudnn_softmax");
  EXPECT_EQ(result.family, "library");
  EXPECT_EQ(result.mean_ns, 11.5);
  EXPECT_EQ(result.median_ns, 10.5);
  EXPECT_EQ(result.min_ns, 9.5);
  EXPECT_EQ(result.p90_ns, 12.5);
  EXPECT_EQ(result.bytes_per_second, 2e12);
  EXPECT_EQ(result.flops_per_second, 3e12);
  EXPECT_EQ(result.fraction_of_ceiling, 0.5);
  EXPECT_EQ(result.relative_error, 1e-6);
  EXPECT_EQ(result.launch.bytes_moved, 77);
  EXPECT_EQ(result.launch.waves, 1.25);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.iterations, 99);
  EXPECT_EQ(result.launches_per_iteration, 4);
  EXPECT_EQ(result.checked_elements, 1000);
  EXPECT_EQ(report->results[1].error, "axis is not the last");
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

// An answer in which every field has a value of its own.
void FillProfile(v1::ProfileResponse* response) {
  response->set_implementation("warp_per_row");
  response->set_device("cuda:0");
  response->set_iterations(7);
  response->set_counters_unavailable("no permission");
  v1::ProfileRow* row = response->add_rows();
  row->set_name("SoftmaxKernel<float>");
  row->set_kind("kernel");
  row->set_calls(7);
  row->set_total_ns(700);
  row->set_mean_ns(100.5);
  row->set_fraction(0.25);
  row->set_registers_per_thread(32);
  row->set_shared_memory_bytes(2048);
  row->set_grid("128,1,1");
  row->set_block("256,1,1");
  row->set_achieved_occupancy(0.5);
  row->set_sm_throughput(0.6);
  row->set_dram_throughput(0.7);
  row->set_bytes(64);
}

void ExpectFilledProfile(const ProfileReport& report) {
  EXPECT_EQ(report.implementation, "warp_per_row");
  EXPECT_EQ(report.device, "cuda:0");
  EXPECT_EQ(report.iterations, 7);
  EXPECT_EQ(report.counters_unavailable, "no permission");
  EXPECT_EQ(report.trace_json, "");
  ASSERT_EQ(report.rows.size(), 1u);
  const ProfileRow& row = report.rows[0];
  EXPECT_EQ(row.name, "SoftmaxKernel<float>");
  EXPECT_EQ(row.kind, "kernel");
  EXPECT_EQ(row.calls, 7);
  EXPECT_EQ(row.total_ns, 700);
  EXPECT_EQ(row.mean_ns, 100.5);
  EXPECT_EQ(row.fraction, 0.25);
  EXPECT_EQ(row.registers_per_thread, 32);
  EXPECT_EQ(row.shared_memory_bytes, 2048);
  EXPECT_EQ(row.grid, "128,1,1");
  EXPECT_EQ(row.block, "256,1,1");
  EXPECT_EQ(row.achieved_occupancy, 0.5);
  EXPECT_EQ(row.sm_throughput, 0.6);
  EXPECT_EQ(row.dram_throughput, 0.7);
  EXPECT_EQ(row.bytes, 64);
}

TEST(ProfileCallTest, SendsTheCallWithItsTensorsAndReadsEveryField) {
  v1::ProfileRequest seen;
  FakeServer server(EchoInputs);
  server.AnswerProfile([&](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    seen = request;
    FillProfile(response);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const std::vector<float> lent = {5, 6};
  const Tensor borrowed =
      Tensor::Borrow(DataType::kFloat32, {2}, {reinterpret_cast<const char*>(lent.data()), 8});
  const auto report = client.Profile(
      {.call = {.kernel = "softmax",
                .inputs = {Tensor::FromFloats({2, 2}, {1, 2, 3, 4}), borrowed},
                .attributes = {{"axis", int64_t{0}}},
                .options = {.implementation = "cuda", .device = "cuda:0", .request_id = "r-9"}},
       .iterations = 7,
       .trace = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(seen.iterations(), 7);
  EXPECT_TRUE(seen.trace());
  EXPECT_EQ(seen.request().kernel(), "softmax");
  EXPECT_EQ(seen.request().implementation(), "cuda");
  EXPECT_EQ(seen.request().device(), "cuda:0");
  EXPECT_EQ(seen.request().request_id(), "r-9");
  EXPECT_EQ(seen.request().attributes().at("axis").int_value(), 0);
  ASSERT_EQ(seen.request().inputs_size(), 2);
  EXPECT_THAT(seen.request().inputs(0).shape(), ElementsAre(2, 2));
  const float sent[] = {1, 2, 3, 4};
  EXPECT_EQ(seen.request().inputs(0).data(),
            std::string(reinterpret_cast<const char*>(sent), sizeof(sent)));
  EXPECT_EQ(seen.request().inputs(1).data(),
            std::string(reinterpret_cast<const char*>(lent.data()), 8));

  ExpectFilledProfile(*report);
}

TEST(ProfileCallTest, SendsWhatTheServerIsToMake) {
  v1::ProfileRequest seen;
  FakeServer server(EchoInputs);
  server.AnswerProfile([&](const v1::ProfileRequest& request, v1::ProfileResponse*) {
    seen = request;
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto report = client.Profile({.call = {.kernel = "softmax"},
                                      .input_specs = {{DataType::kBFloat16, {16384, 4096}}},
                                      .seed = 17,
                                      .request_path = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(seen.request().kernel(), "softmax");
  EXPECT_EQ(seen.request().inputs_size(), 0);
  ASSERT_EQ(seen.input_specs_size(), 1);
  EXPECT_EQ(seen.input_specs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_THAT(seen.input_specs(0).shape(), ElementsAre(16384, 4096));
  EXPECT_EQ(seen.seed(), 17u);
  EXPECT_TRUE(seen.request_path());
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

TEST(ProfileCallTest, TheServersRefusalComesUnchanged) {
  FakeServer server(EchoInputs);
  Client client(server.address(), Patient());
  const auto report = client.Profile({.call = {.kernel = "gelu"}});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("no Profile"));
}

}  // namespace
}  // namespace warpcall::client
