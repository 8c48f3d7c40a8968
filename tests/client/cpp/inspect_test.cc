// Client::Benchmark, its stream, and Client::Profile against a server whose answers the tests
// decide. The command line's tests (cli/bench, cli/profile) cover the fields of requests and
// answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/client/fake_server.h"
#include "tests/client/patience.h"
#include "tests/e2e/eventually.h"
#include "warpcall/client.h"

namespace warpcall::client {
namespace {

using testing::EchoInputs;
using testing::FakeAnswer;
using testing::FakeServer;
using testing::kPatience;
using testing::Patient;

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

v1::BenchmarkResponse OneRow(const std::string& implementation, double median_ns) {
  v1::BenchmarkResponse response;
  response.add_results()->set_implementation(implementation);
  response.mutable_results(0)->set_median_ns(median_ns);
  return response;
}

std::vector<std::string> Names(const BenchmarkReport& report) {
  std::vector<std::string> names;
  for (const BenchmarkResult& result : report.results()) names.push_back(result.implementation());
  return names;
}

TEST(BenchmarkStreamTest, ResultsAreThereAsTheyCome) {
  absl::Notification first_came;
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    call.writer->Write(OneRow("fast", 10));
    // A client that waits for the end before it reports anything never gets there.
    if (!first_came.WaitForNotificationWithTimeout(kPatience))
      return FakeAnswer{absl::InternalError("the first row never came"), std::nullopt};
    v1::BenchmarkResponse last = OneRow("slow", 2000);
    testing::Merge(R"(device: "cpu" ceiling_bytes_per_second: 5e9 flops_ceiling: 7e10
                      stamp { device_description: "a chip" started_unix_ns: 5 })",
                   &last);
    call.writer->Write(last);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  std::vector<int> rows_so_far;
  const auto progress = [&](const BenchmarkReport& so_far) {
    rows_so_far.push_back(so_far.results_size());
    if (so_far.results_size() == 1) first_came.Notify();
    return absl::OkStatus();
  };
  EXPECT_EQ(client.BenchmarkStream({.kernel = "gelu"}, {.progress = progress}, &report),
            absl::OkStatus());
  EXPECT_THAT(rows_so_far, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(Names(report), ::testing::ElementsAre("fast", "slow"));
  EXPECT_EQ(report.device(), "cpu");
  EXPECT_EQ(report.ceiling_bytes_per_second(), 5e9);
  EXPECT_EQ(report.flops_ceiling(), 7e10);
  EXPECT_EQ(report.stamp().device_description(), "a chip");
}

// The row that was reported first, and was too noisy to rank among those known then, is the fastest
// of all; the share of the ceiling is that of the last row measured.
TEST(BenchmarkStreamTest, RanksComeLast) {
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    v1::BenchmarkResponse first = OneRow("noisy", 10);
    testing::Merge("ceiling_bytes_per_second: 2e9", &first);
    testing::Merge(
        "unstable: true bytes_per_second: 1e9 fraction_of_ceiling: 0.5 launch { variant: 'a' }",
        first.mutable_results(0));
    call.writer->Write(first);
    call.writer->Write(OneRow("steady", 2000));
    v1::BenchmarkResponse last;
    testing::Merge(R"(device: "cpu" ceiling_bytes_per_second: 4e9
                      verdicts { key: "noisy:a" value: "fastest" }
                      verdicts { key: "steady" value: "slower by 19900 %" })",
                   &last);
    call.writer->Write(last);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  std::vector<std::string> told;
  const auto progress = [&](const BenchmarkReport& so_far) {
    if (so_far.device().empty())
      told.push_back(so_far.results(so_far.results_size() - 1).verdict());
    return absl::OkStatus();
  };
  ASSERT_EQ(client.BenchmarkStream({.kernel = "gelu"}, {.progress = progress}, &report),
            absl::OkStatus());
  EXPECT_THAT(told, ::testing::ElementsAre("", ""));
  ASSERT_EQ(report.results_size(), 2);
  EXPECT_EQ(report.results(0).verdict(), "fastest");
  EXPECT_EQ(report.results(0).fraction_of_ceiling(), 0.25);
  EXPECT_EQ(report.results(1).verdict(), "slower by 19900 %");
}

TEST(BenchmarkStreamTest, SharesAreOfReadsWhereTheseWereMeasured) {
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    v1::BenchmarkResponse first = OneRow("row", 10);
    testing::Merge("bytes_per_second: 1e9 fraction_of_ceiling: 0.5", first.mutable_results(0));
    call.writer->Write(first);
    v1::BenchmarkResponse last;
    testing::Merge("ceiling_bytes_per_second: 2e9 read_ceiling_bytes_per_second: 4e9", &last);
    call.writer->Write(last);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  ASSERT_EQ(client.BenchmarkStream({.kernel = "matmul"}, {}, &report), absl::OkStatus());
  ASSERT_EQ(report.results_size(), 1);
  EXPECT_EQ(report.results(0).fraction_of_ceiling(), 0.25);
  EXPECT_EQ(report.ceiling_bytes_per_second(), 2e9);
}

TEST(BenchmarkStreamTest, WhatCameIsKeptWhenItDoesNotEndWellAndNothingIsAskedTwice) {
  std::atomic<int> calls{0};
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    calls.fetch_add(1);
    call.writer->Write(OneRow("fast", 10));
    return FakeAnswer{absl::UnavailableError("draining"), "1"};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  const absl::Status ended = client.BenchmarkStream({.kernel = "gelu"}, {}, &report);
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended.message(), "draining");
  EXPECT_THAT(Names(report), ::testing::ElementsAre("fast"));
  EXPECT_EQ(calls.load(), 1);
}

TEST(BenchmarkStreamTest, IsTriedAgainWhileNothingHasCome) {
  std::atomic<int> calls{0};
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    if (calls.fetch_add(1) == 0) return FakeAnswer{absl::ResourceExhaustedError("busy"), "1"};
    call.writer->Write(OneRow("fast", 10));
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  EXPECT_EQ(client.BenchmarkStream({.kernel = "gelu"}, {}, &report), absl::OkStatus());
  EXPECT_THAT(Names(report), ::testing::ElementsAre("fast"));
  EXPECT_EQ(calls.load(), 2);
}

TEST(BenchmarkStreamTest, AServerWithoutItIsAskedForBenchmark) {
  FakeServer server(EchoInputs);
  server.AnswerBenchmark([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    *response = OneRow(request.kernel(), 10);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  int told = 0;
  const auto progress = [&](const BenchmarkReport&) {
    ++told;
    return absl::OkStatus();
  };
  EXPECT_EQ(client.BenchmarkStream({.kernel = "gelu"}, {.progress = progress}, &report),
            absl::OkStatus());
  EXPECT_THAT(Names(report), ::testing::ElementsAre("gelu"));
  EXPECT_EQ(told, 1);
}

TEST(BenchmarkStreamTest, ACancellationEndsItOnBothSides) {
  std::atomic<bool> server_saw{false};
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    call.writer->Write(OneRow("fast", 10));
    server_saw = testing::Eventually(call.cancelled);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  Cancellation cancellation;
  absl::Notification came;
  std::thread canceller([&] {
    came.WaitForNotification();
    cancellation.Cancel();
  });
  const auto progress = [&](const BenchmarkReport&) {
    came.Notify();
    return absl::OkStatus();
  };
  const absl::Status status = client.BenchmarkStream(
      {.kernel = "gelu"}, {.progress = progress, .cancellation = &cancellation}, &report);
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_THAT(Names(report), ::testing::ElementsAre("fast"));
  server.Stop();  // the handler has ended
  EXPECT_TRUE(server_saw.load());
}

TEST(BenchmarkStreamTest, ARowThatComesTwiceIsTheServersMistake) {
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([](const testing::BenchmarkStreamCall& call) {
    call.writer->Write(OneRow("fast", 10));
    call.writer->Write(OneRow("fast", 11));
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  const absl::Status status = client.BenchmarkStream({.kernel = "gelu"}, {}, &report);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("a second result of fast"));
}

// Each result after another one costs time for all before it.
TEST(BenchmarkStreamTest, MoreThanAThousandResultsAreTheServersMistake) {
  FakeServer server(EchoInputs);
  const auto add = [](int begin, int end, v1::BenchmarkResponse* response) {
    for (int i = begin; i < end; ++i)
      response->add_results()->set_implementation(absl::StrCat("row_", i));
  };
  server.AnswerBenchmarkStream([&](const testing::BenchmarkStreamCall& call) {
    for (const int begin : {0, 600}) {
      v1::BenchmarkResponse response;
      add(begin, begin + (call.request.seed() == 1 ? 500 : 600), &response);
      call.writer->Write(response);
    }
    return FakeAnswer{};
  });
  server.AnswerTune([&](const v1::BenchmarkRequest&, v1::BenchmarkResponse* response) {
    add(0, 1001, response);
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  EXPECT_EQ(client.BenchmarkStream({.kernel = "gelu", .seed = 1}, {}, &report), absl::OkStatus());
  EXPECT_EQ(report.results_size(), 1000);
  const absl::Status refused = absl::InternalError(
      "malformed response from the server: more than 1000 results of one benchmark");
  BenchmarkReport too_many;
  EXPECT_EQ(client.BenchmarkStream({.kernel = "gelu", .seed = 2}, {}, &too_many), refused);
  EXPECT_EQ(client.Tune({.kernel = "gelu"}).status(), refused);
}

TEST(BenchmarkStreamTest, AnEndWithoutAnAnswerIsTheServersMistake) {
  FakeServer server(EchoInputs);
  server.AnswerBenchmarkStream([](const testing::BenchmarkStreamCall&) { return FakeAnswer{}; });
  Client client(server.address(), Patient());
  BenchmarkReport report;
  EXPECT_EQ(client.BenchmarkStream({.kernel = "gelu"}, {}, &report).code(),
            absl::StatusCode::kInternal);
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

TEST(ProfileCallTest, PutsALostTensorAgain) {
  std::vector<std::string> handles;
  FakeServer server(EchoInputs);
  server.AnswerPut([&](const std::vector<v1::PutRequest>&, v1::PutResponse* response) {
    response->set_handle(handles.empty() ? "first" : "second");
    return FakeAnswer{};
  });
  server.AnswerProfile([&](const v1::ProfileRequest& request, v1::ProfileResponse*) {
    handles.push_back(request.request().inputs(0).handle());
    if (handles.back() == "first") return FakeAnswer{absl::NotFoundError(""), {}, "first expired"};
    return FakeAnswer{};
  });
  Client client(server.address(), Patient());
  const auto x = client.Put(Tensor::FromFloats({1}, {1}));
  ASSERT_TRUE(x.ok()) << x.status();
  const auto report = client.Profile({.call = {.kernel = "gelu", .inputs = {x->tensor}}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(handles, ::testing::ElementsAre("first", "second"));
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
  EXPECT_TRUE(report->trace_json() == trace);
}

}  // namespace
}  // namespace warpcall::client
