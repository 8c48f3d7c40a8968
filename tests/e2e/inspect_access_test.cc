// Access to Benchmark, Profile and Describe: the principals allowed, their limits in time and
// number, and the records that the operator sees.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

v1::BenchmarkRequest BenchmarkBy(const std::string& kernel, const std::string& implementation) {
  v1::BenchmarkRequest request = BenchmarkOf(kernel, {{16, 3}});
  request.add_implementations(implementation);
  request.set_iterations(3);
  return request;
}

// Waits until the gate opens.
v1::BenchmarkRequest ShortHeldBenchmark(const Gate& gate) {
  v1::BenchmarkRequest request = BenchmarkBy("held", "auto");
  (*request.mutable_attributes())["gate"].set_string_value(gate.path());
  return request;
}

// A Benchmark under way, on a connection of its own.
class Asked {
 public:
  Asked(const ServerProcess& server, const v1::BenchmarkRequest& request)
      : stub_(v1::KernelService::NewStub(Connect(server.address()))) {
    // So that its process is known from the server's own, which measures bandwidths.
    context_.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    call_ = stub_->PrepareAsyncBenchmark(&context_, request, &events_);
    call_->StartCall();
    call_->ReadInitialMetadata(this);
    call_->Finish(&response_, &status_, this);
  }
  ~Asked() {
    context_.TryCancel();
    Finish();
  }

  // Position that the server sends as soon as the call waits; "" if the call ended without one.
  std::string QueuePosition() {
    Next();
    const auto& metadata = context_.GetServerInitialMetadata();
    const auto found = metadata.find("warpcall-queue-position");
    if (found == metadata.end()) return "";
    return {found->second.data(), found->second.size()};
  }
  const grpc::Status& Finish() {
    while (events_left_ > 0) Next();
    return status_;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void Next() {
    void* tag;
    bool ok;
    if (events_left_-- > 0) events_.Next(&tag, &ok);
  }

  const std::unique_ptr<v1::KernelService::Stub> stub_;
  grpc::CompletionQueue events_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::BenchmarkResponse>> call_;
  v1::BenchmarkResponse response_;
  grpc::Status status_;
  int events_left_ = 2;
};

bool Runs(const ServerProcess& server) { return ChildWith(server.pid(), "--traceparent=") > 0; }

grpc::Status Describe(const std::string& address) {
  grpc::ClientContext context;
  v1::DescribeRequest request;
  request.set_kernel("gelu");
  *request.add_inputs() = BenchmarkBy("gelu", "auto").inputs(0);
  v1::DescribeResponse response;
  return v1::KernelService::NewStub(Connect(address))->Describe(&context, request, &response);
}

TEST(InspectAccessTest, OffRefusesEachByTheFlagsName) {
  ServerProcess server({"--self_test=off", "--inspect=off"});
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  const auto expect_refused = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr("off on this server (inspect is off)"));
  };
  expect_refused(Describe(server.address()));
  expect_refused(Asked(server, BenchmarkBy("gelu", "auto")).Finish());
  grpc::ClientContext stream_context;
  expect_refused(stub->BenchmarkStream(&stream_context, BenchmarkBy("gelu", "auto"))->Finish());
  grpc::ClientContext context;
  v1::ProfileRequest request;
  *request.mutable_request() = Request("gelu", {FloatTensor(4)});
  v1::ProfileResponse response;
  expect_refused(stub->Profile(&context, request, &response));
  const auto refused = [&](const std::string& method) {
    return server.Sum("warpcall_inspections_total",
                      {absl::StrCat("method=\"", method, "\""), "code=\"PERMISSION_DENIED\""});
  };
  EXPECT_EQ(refused("describe"), 1);
  EXPECT_EQ(refused("profile"), 1);
  EXPECT_EQ(refused("benchmark"), 2);  // one of them streamed
  EXPECT_TRUE(Execute(Connect(server.address()), request.request()).status.ok());
  EXPECT_EQ(server.Stop(), 0);
}

// An IPv4 address of this machine that is none of its loopback's; "" where it has none.
std::string OutsideAddress() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "";
  std::string found;
  for (const ifaddrs* at = first; at != nullptr && found.empty(); at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET ||
        (at->ifa_flags & IFF_LOOPBACK) != 0 || (at->ifa_flags & IFF_UP) == 0)
      continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text,
              sizeof(text));
    found = text;
  }
  freeifaddrs(first);
  return found;
}

TEST(InspectAccessTest, LocalIsForCallersOnThisMachine) {
  const TempFolder folder;
  const std::string path = "unix:" + folder.Path("w.sock");
  ServerProcess server({"--self_test=off", "--inspect=local", "--insecure",
                        absl::StrCat("--listen=0.0.0.0:0,", path)});
  const std::string port =
      server.address().substr(8, server.address().find(',') - 8);  // "0.0.0.0:PORT,unix:..."
  EXPECT_TRUE(Describe(path).ok());
  EXPECT_TRUE(Describe("127.0.0.1:" + port).ok());
  const std::string outside = OutsideAddress();
  if (outside.empty()) GTEST_SKIP() << "this machine has but its loopback addresses";
  const grpc::Status status = Describe(absl::StrCat(outside, ":", port));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr(outside));
  EXPECT_THAT(status.error_message(), HasSubstr("(inspect is local)"));
}

TEST(InspectAccessTest, PushIsForCallersOnThisMachine) {
  ServerProcess server({"--self_test=off", "--insecure", "--listen=0.0.0.0:0"});
  const std::string port = server.address().substr(8);  // "0.0.0.0:PORT"
  const auto push = [&](const std::string& address) {
    grpc::ClientContext context;
    const auto stub = v1::KernelService::NewStub(Connect(address));
    const auto reader = stub->Push(&context, v1::PushRequest());
    for (v1::PushEvent event; reader->Read(&event);) continue;
    return reader->Finish();
  };
  EXPECT_EQ(push("127.0.0.1:" + port).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const std::string outside = OutsideAddress();
  if (outside.empty()) GTEST_SKIP() << "this machine has but its loopback addresses";
  const grpc::Status status = push(absl::StrCat(outside, ":", port));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("Push is for callers on this server's machine"));
}

TEST(InspectAccessTest, WhoWaitsIsToldHowManyGoBeforeAndTheQueueHasItsLimit) {
  ServerProcess server(FlagsForHeld({"--inspect_queue=1"}));
  Gate gate;
  Asked running(server, ShortHeldBenchmark(gate));
  ASSERT_TRUE(Eventually([&] { return Runs(server); }));
  Asked waiting(server, BenchmarkBy("gelu", "auto"));
  EXPECT_EQ(waiting.QueuePosition(), "1");
  const grpc::Status refused = Asked(server, BenchmarkBy("gelu", "auto")).Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("1 (inspect_queue)"));
  gate.Open();
  EXPECT_TRUE(running.Finish().ok());
  EXPECT_TRUE(waiting.Finish().ok());
}

// The first call ends only when the client library has reported the second's place.
TEST(InspectAccessTest, TheClientTellsOfItsPlaceWhileItWaits) {
  ServerProcess server(FlagsForHeld({}));
  const client::DescribeCall describe = {
      .kernel = "gelu", .inputs = {{DataType::kFloat32, {4}}}, .timeout = absl::Minutes(1)};
  const client::BenchmarkCall benchmark = {.kernel = "gelu",
                                           .inputs = {{DataType::kFloat32, {4}}},
                                           .iterations = 3,
                                           .timeout = absl::Minutes(1)};
  for (const bool in_parts : {false, true}) {
    Gate gate;
    Asked running(server, ShortHeldBenchmark(gate));
    ASSERT_TRUE(Eventually([&] { return Runs(server); }));
    std::atomic<int> told{0};
    client::Client client(server.address(), {.queued = [&](int ahead) {
                            told = ahead;
                            gate.Open();
                          }});
    client::BenchmarkReport report;
    EXPECT_TRUE(in_parts ? client.BenchmarkStream(benchmark, {}, &report).ok()
                         : client.Describe(describe).ok());
    EXPECT_EQ(told.load(), 1) << in_parts;
    gate.Open();
    EXPECT_TRUE(running.Finish().ok());
    EXPECT_TRUE(Eventually([&] { return !Runs(server); }));
  }
}

// A row that heeds nothing is ended; others end in time, and the answer has their results.
TEST(InspectAccessTest, WhatTakesTooLongIsEnded) {
  ServerProcess server(FlagsForHeld({"--inspect_seconds=5"}));
  const grpc::Status status = Asked(server, BenchmarkBy("broken", "endless")).Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the limit of 5 s (inspect_seconds)"));
}

TEST(InspectAccessTest, WhatItTakesIsInTheMetricsWhileItRuns) {
  ServerProcess server(FlagsForHeld());
  Asked endless(server, BenchmarkBy("broken", "endless"));
  const auto cpu_seconds = [&](const std::string& kernel) {
    return server.Sum("warpcall_inspection_cpu_seconds_total",
                      {"method=\"benchmark\"", absl::StrCat("kernel=\"", kernel, "\"")});
  };
  EXPECT_TRUE(Eventually([&] { return cpu_seconds("broken") > 0.5; }));
  endless.Cancel();
  EXPECT_EQ(endless.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Asked(server, BenchmarkBy("gelu", "cpu")).Finish().ok());
  EXPECT_TRUE(Eventually([&] { return cpu_seconds("gelu") > 0; }));
  EXPECT_GT(server.Sum("warpcall_inspection_device_seconds_total",
                       {"method=\"benchmark\"", "kernel=\"gelu\""}),
            0);
  EXPECT_EQ(server.Sum("warpcall_inspection_cpu_seconds_total", {"method=\"profile\""}), 0);
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.log(),
              ::testing::ContainsRegex("msg=\"benchmark done\".* kernel=gelu inputs=float32.16,3. "
                                       "device=cpu code=OK cpu_ns=[1-9]"));
}

}  // namespace
}  // namespace warpcall::testing
