// Clients that send many requests and read nothing: their answers stay in staging memory, and
// everyone else is served as before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "inference/grpc_service.pb.h"
#include "tests/e2e/all_methods.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "tests/e2e/steady_clients.h"
#include "tests/programs.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

constexpr char kStagingFlag[] = "--staging_mib=64";
constexpr int64_t kStagingBytes = 64 * kMib;
// Pause between requests, so that making the answers keeps nobody busy: the test measures that the
// server holds the answers.
constexpr absl::Duration kPause = absl::Milliseconds(20);

// Bytes that the process may hold beside its staging memory: sockets' buffers, the allocator and,
// under AddressSanitizer, the quarantine of 256 MiB.
int64_t AllowanceBytes() { return (ProgramsAreSanitized() ? 1024 : 48) * kMib; }

// Never reads its socket.
class RawClient {
 public:
  explicit RawClient(const std::string& address)
      : message_(LargeAnswerRequest().SerializeAsString()), http2_(address) {}

  // Waits until the server has read all requests: it never sees data that lies in its socket when
  // the connection ends.
  void AwaitRead() {
    EXPECT_TRUE(Eventually([&] { return http2_.UnreadBytes() == 0; }));
  }

  void Ask() {
    http2_.Send(RawHttp2::CallFrames(stream_, message_));
    stream_ += 2;
    EXPECT_TRUE(http2_.connected());
  }

 private:
  const std::string message_;
  RawHttp2 http2_;
  uint32_t stream_ = 1;
};

// Makes a RawClient send requests again and again; then it vanishes.
class Asker {
 public:
  Asker(const std::string& address, int* asked)
      : client_(address), thread_([this, asked] {
          GiveWay();
          for (; !over_; ++*asked) {
            client_.Ask();
            absl::SleepFor(kPause);
          }
        }) {}
  ~Asker() {
    over_ = true;
    thread_.join();
    client_.AwaitRead();
  }

 private:
  RawClient client_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// The server's sends get stuck in the flow control of HTTP/2.
TEST(FaultsReading, AClientThatNeverReadsHoldsItsAnswersAlone) {
  ServerProcess server({kStagingFlag, "--max_message_mib=64", "--log_level=error"});
  const auto staging_used = [&] {
    return server.Sum("warpcall_staging_bytes", {"state=\"used\""});
  };
  const int64_t before_bytes = server.ResidentBytes();
  SteadyClients others(server.address());
  int faults = 0;
  int asked = 0;
  const auto begin_and_hold = [&] {
    ++faults;
    const Fault fault = std::make_shared<Asker>(server.address(), &asked);
    EXPECT_TRUE(Eventually([&] { return staging_used() >= kStagingBytes / 4; }));
    return fault;
  };
  ExpectUndisturbed(&others, begin_and_hold, [&] { return staging_used() == 0; });
  EXPECT_LT(server.PeakResidentBytes() - before_bytes, kStagingBytes + AllowanceBytes());
  // Each request of theirs ended, in one of three ways; the last before a client vanished may never
  // have been seen, or before its kernel was.
  Samples now;  // from one moment: that request may be counted in between
  const auto ended = [&](const std::string& code, const std::string& kernel = "matmul") {
    return SumOf(now, "warpcall_requests_total",
                 {"kernel=\"" + kernel + "\"", "code=\"" + code + "\""});
  };
  const auto all_ended = [&] {
    return ended("OK") + ended("RESOURCE_EXHAUSTED") + ended("CANCELLED") + ended("CANCELLED", "");
  };
  EXPECT_TRUE(Eventually([&] {
    now = server.Metrics();
    return all_ended() >= asked - faults;
  })) << all_ended()
      << " of " << asked;
  EXPECT_LE(all_ended(), asked);
  EXPECT_EQ(SumOf(now, "warpcall_requests_total", {}), others.sent() + all_ended());
  EXPECT_EQ(SumOf(now, "warpcall_rejected_total", {}), ended("RESOURCE_EXHAUSTED"));
  EXPECT_EQ(server.Stop(), 0);
}

// Which hold staging memory until somebody ends their calls.
TEST(FaultsReading, AnswersThatNobodyReadsAreGivenUpAndTheirMemoryIsFree) {
  ServerProcess server({kStagingFlag, "--max_message_mib=64", "--send_seconds=1"});
  const auto staging_used = [&] {
    return server.Sum("warpcall_staging_bytes", {"state=\"used\""});
  };
  RawClient client(server.address());
  for (int i = 0; i < 3; ++i) client.Ask();
  EXPECT_TRUE(Eventually([&] { return staging_used() >= kStagingBytes / 4; }));
  EXPECT_TRUE(Eventually([&] { return staging_used() == 0; }));
  EXPECT_TRUE(server.Logs("ended calls whose answers nobody reads"));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(FaultsReading, AClientThatReadsLateGetsItsAnswer) {
  constexpr int64_t kAnswerBytes = 8 * kMib;
  ServerProcess server({kStagingFlag, "--max_message_mib=64", "--send_seconds=20"});
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, LargeAnswerRequest().SerializeAsString()));
  EXPECT_TRUE(Eventually(
      [&] { return server.Sum("warpcall_staging_bytes", {"state=\"used\""}) >= kAnswerBytes; }));
  absl::SleepFor(absl::Seconds(2));
  client.Grant(1, 2 * kAnswerBytes);
  EXPECT_TRUE(client.AwaitEnd(1));
  client.Close();
  EXPECT_EQ(server.Stop(), 0);
}

constexpr char kKernels[] = "/warpcall.v1.KernelService/";
constexpr char kModels[] = "/inference.GRPCInferenceService/";

v1::BenchmarkRequest ShortBenchmark() {
  v1::BenchmarkRequest request = BenchmarkOf("gelu", {{64}});
  request.add_implementations("reference");
  request.set_iterations(5);
  request.set_warmup_iterations(1);
  return request;
}

v1::ProfileRequest ShortProfile() {
  v1::ProfileRequest request;
  *request.mutable_request() = Request("gelu", {FloatTensor(64)});
  request.set_iterations(1);
  return request;
}

inference::ModelInferRequest Inference() {
  inference::ModelInferRequest request;
  request.set_model_name("gelu_fp32__cpu");
  inference::ModelInferRequest::InferInputTensor* const input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(1);
  request.add_raw_input_contents(std::string(4, '\0'));
  return request;
}

// A request for each method whose empty request gets no answer.
std::map<std::string, std::string> Requests() {
  v1::ExecuteStreamRequest stream;  // complete: it has no elements
  *stream.mutable_header() = Request("gelu", {FloatTensor({0}, {})});
  inference::ModelMetadataRequest metadata;
  metadata.set_name("gelu_fp32__cpu");
  inference::ModelConfigRequest config;
  config.set_name("gelu_fp32__cpu");
  v1::PushRequest push;
  push.set_code("// warpcall-kernel {\n// }\n");  // its verdict is on its manifest
  v1::ExecuteGraphRequest graph;
  graph.add_inputs()->set_name("x");
  *graph.mutable_inputs(0)->mutable_tensor() = FloatTensor({0}, {});
  graph.add_steps()->set_name("y");
  graph.mutable_steps(0)->set_kernel("gelu");
  graph.mutable_steps(0)->add_inputs("x");
  graph.add_outputs()->set_name("y");
  const std::string list_services("\x3a\x01*");
  return {
      {absl::StrCat(kKernels, "Execute"), LargeAnswerRequest().SerializeAsString()},
      {absl::StrCat(kKernels, "ExecuteStream"), stream.SerializeAsString()},
      {absl::StrCat(kKernels, "ExecuteGraph"), graph.SerializeAsString()},
      {absl::StrCat(kKernels, "Benchmark"), ShortBenchmark().SerializeAsString()},
      {absl::StrCat(kKernels, "BenchmarkStream"), ShortBenchmark().SerializeAsString()},
      {absl::StrCat(kKernels, "Tune"), ShortBenchmark().SerializeAsString()},
      {absl::StrCat(kKernels, "Profile"), ShortProfile().SerializeAsString()},
      {absl::StrCat(kKernels, "Describe"), DescribeOf("gelu", {{64}}).SerializeAsString()},
      {absl::StrCat(kKernels, "Push"), push.SerializeAsString()},
      {absl::StrCat(kModels, "ModelMetadata"), metadata.SerializeAsString()},
      {absl::StrCat(kModels, "ModelConfig"), config.SerializeAsString()},
      {absl::StrCat(kModels, "ModelInfer"), Inference().SerializeAsString()},
      {absl::StrCat(kModels, "ModelStreamInfer"), Inference().SerializeAsString()},
      {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", list_services},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services},
  };
}

// Methods that refuse every request here: a status needs no leave of the client's.
constexpr const char* kRefusing[] = {
    "RepositoryModelLoad",        "RepositoryModelUnload",    "TraceSetting", "LogSettings",
    "SystemSharedMemoryRegister", "CudaSharedMemoryRegister", "Get",          "Put",
};

bool Refuses(const std::string& method) {
  for (const char* const name : kRefusing)
    if (absl::EndsWith(method, absl::StrCat("/", name))) return true;
  return false;
}

// The trailer as a connection's first call brings it.
std::string StatusTrailer(grpc::StatusCode code) {
  const std::string digits = absl::StrCat(static_cast<int>(code));
  return absl::StrCat("\x0bgrpc-status", std::string(1, static_cast<char>(digits.size())), digits);
}

// A client that grants nothing and calls `method`.
std::unique_ptr<RawHttp2> AskUnread(const std::string& address, const std::string& method,
                                    const std::string& request) {
  auto client = std::make_unique<RawHttp2>(address, 0);
  client->Send(RawHttp2::CallFrames(1, request, "", method));
  return client;
}

TEST(FaultsReading, NoMethodKeepsAnAnswerThatNobodyReads) {
  constexpr int kInspections = 6;
  constexpr absl::Duration kSlack = absl::Seconds(10);  // ten times --send_seconds
  ServerProcess server({"--send_seconds=1", "--lame_duck_seconds=0"});
  const std::map<std::string, std::string> requests = Requests();
  std::map<std::string, std::unique_ptr<RawHttp2>> clients;
  for (const std::string& method : AllMethods()) {
    const auto found = requests.find(method);
    clients[method] =
        AskUnread(server.address(), method, found == requests.end() ? "" : found->second);
  }
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_inspections_total") >= kInspections; }));
  const absl::Time give_up = absl::Now() + kSlack;
  for (const auto& [method, client] : clients) {
    client->LimitReads(std::max(give_up - absl::Now(), absl::Milliseconds(100)));
    EXPECT_TRUE(client->AwaitEnd(1)) << method;
    const bool was_cancelled =
        absl::StrContains(client->headers(), StatusTrailer(grpc::StatusCode::CANCELLED));
    EXPECT_NE(was_cancelled, Refuses(method)) << method;
  }
  EXPECT_EQ(server.Stop(), 0);
}

// A drain waits for accepted calls, but not for clients that do not read their answers.
TEST(FaultsReading, AnAnswerThatNobodyReadsHoldsNoDrain) {
  ServerProcess server({"--send_seconds=1", "--lame_duck_seconds=0", "--drain_seconds=60"});
  const std::map<std::string, std::string> requests = Requests();
  std::vector<std::unique_ptr<RawHttp2>> clients;
  for (const char* const name : {"Describe", "BenchmarkStream", "Benchmark"})
    clients.push_back(AskUnread(server.address(), absl::StrCat(kKernels, name),
                                requests.at(absl::StrCat(kKernels, name))));
  EXPECT_TRUE(Eventually([&] { return server.Sum("warpcall_inspections_total") >= 3; }));
  const absl::Time begin = absl::Now();
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

// Nothing that a client has read is on its way to it.
TEST(FaultsReading, AWatchWithNothingToSayStays) {
  ServerProcess server({"--send_seconds=1", "--lame_duck_seconds=0"});
  RawHttp2 client(server.address());
  client.Send(RawHttp2::CallFrames(1, "", "", "/grpc.health.v1.Health/Watch"));
  client.LimitReads(absl::Seconds(4));
  EXPECT_FALSE(client.AwaitEnd(1));
  EXPECT_THAT(client.headers(), ::testing::Not(::testing::HasSubstr("grpc-status")));
  EXPECT_TRUE(client.connected());
  client.Close();
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.log(), ::testing::Not(::testing::HasSubstr("answers nobody reads")));
}

}  // namespace
}  // namespace warpcall::testing
