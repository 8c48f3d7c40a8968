// Start, serve, drain, end: through the real binary and real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/counted_server.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/server_process.h"
#include "tests/held_port.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;

TEST(Lifecycle, ReportsHealthAndReadiness) {
  ServerProcess server({"--lame_duck_seconds=3600"});
  client::Client client(server.address());
  EXPECT_EQ(*client.Health(), client::ServingStatus::kServing);
  EXPECT_EQ(server.Get("/healthz").first, 200);
  EXPECT_EQ(server.Get("/readyz").first, 200);
  server.Signal(SIGTERM);
  std::pair<int, std::string> ready;
  while ((ready = server.Get("/readyz")).first == 200) std::this_thread::yield();
  // The lame duck: not ready, but alive and serving.
  EXPECT_EQ(ready.first, 503);
  EXPECT_TRUE(Eventually([&] { return *client.Health() == client::ServingStatus::kNotServing; }));
  EXPECT_EQ(server.Get("/healthz").first, 200);
  EXPECT_TRUE(Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_EQ(server.Stop(), 0);  // a second signal ends it
}

// With the GPUs that it has to have, it is: tests/server/transport/gpus_min_test.cc.
TEST(Lifecycle, IsNotReadyWithFewerGpusThanItHasToHave) {
  ServerProcess server({"--devices=cpu", "--gpus_min=1"});
  EXPECT_EQ(server.Get("/readyz"),
            std::pair(503, std::string("GPUs that work: 0; at least: 1 (gpus_min)\n")));
  EXPECT_EQ(*client::Client(server.address()).Health(), client::ServingStatus::kNotServing);
  EXPECT_EQ(server.Get("/healthz").first, 200);
  EXPECT_TRUE(Execute(Connect(server.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.log(), HasSubstr("not ready: GPUs that work: 0; at least: 1 (gpus_min)"));
  EXPECT_THAT(server.log(), ::testing::Not(HasSubstr("ready after")));
}

TEST(Lifecycle, SaysAtItsStartThatAllDevicesAreTheCpu) {
  const absl::string_view line = "no GPU: the CPU serves alone";
  ServerProcess any({"--devices=auto"});
  ServerProcess cpu({"--devices=cpu"});
  const bool has_gpu = any.Sum("warpcall_device_healthy") > 1;
  EXPECT_EQ(any.Stop(), 0);
  EXPECT_EQ(cpu.Stop(), 0);
  EXPECT_EQ(absl::StrContains(any.log(), line), !has_gpu);
  EXPECT_FALSE(absl::StrContains(cpu.log(), line));
}

TEST(Lifecycle, SigtermUnderLoadFailsNoAcceptedRequest) {
  for (int round = 0; round < 5; ++round) {
    ServerProcess server(
        FlagsForHeld({"--lame_duck_seconds=0.2", "--lanes_per_device=3", "--drain_seconds=600"}));
    // Keeps the server up until it has refused each client by name: a client that finds it gone
    // cannot know if its request had been accepted.
    Gate gate;
    PendingCall held(server, gate.HeldRequest());
    ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
    std::atomic<int> done{0}, wrong{0}, served{0};
    std::vector<std::thread> clients;
    std::vector<std::string> ends(8);
    for (std::string& end : ends) {
      clients.emplace_back([&] {
        const auto channel = Connect(server.address());
        const v1::ExecuteRequest request = Request("gelu", {FloatTensor(1 << 16)});
        for (bool first = true;; first = false) {
          const Reply reply = Execute(channel, request);
          // A request that was accepted and lost ends UNAVAILABLE, too, but by gRPC's words.
          end = reply.CodeAndMessage();
          if (!reply.status.ok()) return;
          if (reply.response.outputs(0).data().size() != 4 << 16) ++wrong;
          ++done;
          if (first) ++served;
        }
      });
    }
    while (done < 50 || served < 8) std::this_thread::yield();
    server.Signal(SIGTERM);
    for (std::thread& client : clients) client.join();
    EXPECT_THAT(ends, ::testing::Each("14: the server is draining"));
    EXPECT_EQ(wrong, 0);
    gate.Open();
    EXPECT_TRUE(held.Wait().ok()) << held.Wait().error_message();
    EXPECT_EQ(server.Wait(), 0);
    // The server finished every call it accepted: its log holds nothing but refusals.
    EXPECT_THAT(server.log(), ::testing::Not(HasSubstr("code=INTERNAL")));
    EXPECT_THAT(server.log(), ::testing::Not(HasSubstr("code=CANCELLED")));
  }
}

// While gRPC shuts down, it ends new calls with CANCELLED, which nobody retries: the server closes
// its connections first.
TEST(Lifecycle, WhoseCallsComeUntilTheEndIsRefusedByNameAndNotCancelled) {
  ServerProcess server;
  RawHttp2 client(server.address());  // it heeds no GOAWAY
  const std::string request = SmallRequest().SerializeAsString();
  auto call = [&, stream = uint32_t{1}]() mutable {
    client.Send(RawHttp2::CallFrames(stream, request));
    return client.AwaitEnd(std::exchange(stream, stream + 2));
  };
  EXPECT_TRUE(call());
  client.LeavePings();
  server.Signal(SIGTERM);
  int answered = 0;
  int cancelled = 0;
  for (; call(); ++answered)
    if (absl::StrContains(client.headers(),
                          "grpc-status\x01"
                          "1"))
      ++cancelled;
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_GT(answered, 0);
  EXPECT_EQ(cancelled, 0) << "of " << answered;
}

TEST(Lifecycle, WhatWasAcceptedIsFinishedAfterSigtermAndTheRestRefused) {
  CountedServer server(FlagsForHeld({"--lanes_per_device=1", "--drain_seconds=600"}));
  Gate gate;
  PendingCall running(server.process(), gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server.process()); }));
  PendingCall waiting(server.process(), gate.HeldRequest());
  PendingCall small(server.process(), SmallRequest());
  EXPECT_TRUE(Eventually([&] { return server.Waiting(2); }));
  server.process().Signal(SIGTERM);
  EXPECT_TRUE(server.process().Logs("msg=draining"));
  server.Send(SmallRequest(), GeluEnds(grpc::StatusCode::UNAVAILABLE));
  gate.Open();
  for (PendingCall* call : {&running, &waiting, &small})
    EXPECT_TRUE(call->Wait().ok()) << call->Wait().error_message();
  EXPECT_EQ(server.process().Wait(), 0);
  EXPECT_THAT(server.process().log(), HasSubstr("msg=\"stopped: drained 3, status 0\""));
  EXPECT_THAT(server.process().log(), ::testing::Not(HasSubstr("level=error")));
}

// Refused clients pause, both by a draining server's hint and where no server is left: without a
// pause each worker sends thousands of requests a second.
TEST(Lifecycle, LoadLeavesADrainingServerAndAPlaceWithoutOneAlone) {
  constexpr int kWorkers = 4;
  ServerProcess server(FlagsForHeld({"--lanes_per_device=2", "--drain_seconds=600"}));
  Gate gate;
  PendingCall held(server, gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  std::signal(SIGINT, SIG_DFL);  // shells ignore it for background jobs
  const TempFolder folder;
  ProgramResult run;
  std::thread load([&] {
    run =
        RunProgram(absl::StrCat("echo $$ >'", folder.Path("pid"), "'; exec '",
                                ProgramPath("warpcall"), "' --json --server ", server.address(),
                                " load gelu:64 --warmup 0 --duration 600 --concurrency ", kWorkers),
                   folder.Path("err"));
  });
  const auto count = [&](const char* code) {
    return server.Sum("warpcall_requests_total", {absl::StrCat("code=\"", code, "\"")});
  };
  EXPECT_TRUE(Eventually([&] { return count("OK") > kWorkers; }));
  server.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return count("UNAVAILABLE") >= kWorkers; }));
  gate.Open();
  EXPECT_TRUE(held.Wait().ok());
  EXPECT_EQ(server.Wait(), 0);
  const HeldPort nobody(server.address());
  EXPECT_TRUE(nobody.is_held());
  // Some seconds more: it prints a line in each.
  const size_t printed = ReadFile(folder.Path("err")).size();
  EXPECT_TRUE(Eventually([&] {
    const std::string err = ReadFile(folder.Path("err"));
    return std::count(err.begin() + static_cast<ptrdiff_t>(printed), err.end(), '\n') >= 4;
  }));
  EXPECT_EQ(kill(std::stoi(ReadFile(folder.Path("pid"))), SIGINT), 0);
  load.join();
  EXPECT_EQ(run.exit_status, 1) << run.err;
  const auto result = nlohmann::json::parse(run.out);
  const auto& statuses = result["all"]["statuses"];
  // While it drains, one a second from each; without a server eight within the first three
  // seconds, and one in each that follows.
  const double most = kWorkers * (8 + 1 + result["elapsed_ns"].get<double>() * 1e-9);
  EXPECT_GE(statuses["UNAVAILABLE"]["count"], kWorkers + 1) << statuses;
  EXPECT_LE(statuses["UNAVAILABLE"]["count"], most) << statuses;
  EXPECT_GE(result["backoff"]["pauses"], kWorkers);
}

TEST(Lifecycle, RequestIdsComeBackAndStandInTheLog) {
  ServerProcess server({"--log_level=debug"});
  const auto channel = Connect(server.address());
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  EXPECT_FALSE(Execute(channel, request).response.request_id().empty());
  request.set_request_id("job-17");
  EXPECT_EQ(Execute(channel, request).response.request_id(), "job-17");
  request.set_kernel("nope");
  request.set_request_id("evil\nlevel=info");
  EXPECT_FALSE(Execute(channel, request).status.ok());
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.log(), HasSubstr("request_id=job-17"));
  EXPECT_THAT(server.log(), HasSubstr("request_id=\"evil\\nlevel=info\""));
}

// Calls Execute with `metadata`.
grpc::Status ExecuteWith(const ServerProcess& server, const v1::ExecuteRequest& request,
                         const std::vector<std::pair<std::string, std::string>>& metadata) {
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  grpc::ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  v1::ExecuteResponse response;
  return stub->Execute(&context, request, &response);
}

// The line of the log about `id`, "" without one.
std::string LineAbout(const ServerProcess& server, const std::string& id) {
  const std::string log = server.log();
  const size_t at = log.find("request_id=" + id + " ");
  if (at == std::string::npos) return "";
  const size_t begin = log.rfind('\n', at) + 1;
  return log.substr(begin, log.find('\n', at) - begin);
}

TEST(Lifecycle, TheCallersTraceStandsInTheLog) {
  ServerProcess server({"--log_level=debug"});
  const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const std::string ids = "trace_id=4bf92f3577b34da6a3ce929d0e0e4736 parent_id=00f067aa0ba902b7";
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.set_request_id("done");
  EXPECT_TRUE(ExecuteWith(server, request, {{"traceparent", parent}}).ok());
  request.set_request_id("malformed");
  EXPECT_TRUE(ExecuteWith(server, request, {{"traceparent", parent + "x"}}).ok());
  request.set_request_id("twice");
  EXPECT_TRUE(
      ExecuteWith(server, request, {{"traceparent", parent}, {"traceparent", parent}}).ok());
  request.set_request_id("without");
  EXPECT_TRUE(ExecuteWith(server, request, {}).ok());
  request.set_request_id("failed");
  request.set_kernel("nope");
  EXPECT_FALSE(ExecuteWith(server, request, {{"traceparent", parent}}).ok());
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(LineAbout(server, "done"), HasSubstr(ids));
  for (const char* id : {"malformed", "twice", "without"}) {
    EXPECT_NE(LineAbout(server, id), "");
    EXPECT_THAT(LineAbout(server, id), ::testing::Not(HasSubstr("trace_id="))) << id;
  }
  EXPECT_THAT(LineAbout(server, "failed"), HasSubstr(ids));
}

TEST(Lifecycle, ARequestWhoseIdCannotBeReadIsLoggedUnderOneOfOurs) {
  ServerProcess server({"--max_message_mib=1"});
  const auto channel = Connect(server.address());
  EXPECT_FALSE(Execute(channel, Request("gelu", {FloatTensor(1 << 19)})).status.ok());
  EXPECT_FALSE(CallRaw(channel, "\xff").status.ok());
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.set_request_id(std::string(257, 'r'));
  EXPECT_FALSE(Execute(channel, request).status.ok());
  EXPECT_EQ(server.Stop(), 0);
  for (const char* const id : {"warpcall-1", "warpcall-2", "warpcall-3"})
    EXPECT_NE(LineAbout(server, id), "") << id;
}

TEST(Lifecycle, TheLogLevelChangesWhileItRuns) {
  ServerProcess server({"--log_level=error"});
  const auto channel = Connect(server.address());
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  EXPECT_EQ(server.Get("/log_level"), (std::pair<int, std::string>(200, "error\n")));
  request.set_request_id("hidden");
  EXPECT_TRUE(Execute(channel, request).status.ok());
  EXPECT_EQ(server.Put("/log_level", "loud").first, 400);
  EXPECT_EQ(server.Put("/log_level", "debug"), (std::pair<int, std::string>(200, "debug\n")));
  request.set_request_id("shown");
  EXPECT_TRUE(Execute(channel, request).status.ok());
  EXPECT_TRUE(Eventually([&] { return !LineAbout(server, "shown").empty(); }));
  EXPECT_THAT(server.log(), HasSubstr("msg=\"log level changed\" from=error to=debug"));
  EXPECT_EQ(LineAbout(server, "hidden"), "");
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Lifecycle, ServesAUnixSocketBesideTcp) {
  const std::string path = ::testing::TempDir() + "/warpcall-" + std::to_string(getpid()) + ".sock";
  ServerProcess server({"--listen=127.0.0.1:0,unix:" + path});
  EXPECT_THAT(server.address(), HasSubstr(",unix:"));
  const auto channel = Connect("unix:" + path);
  EXPECT_TRUE(Execute(channel, Request("gelu", {FloatTensor(4)})).status.ok());
  EXPECT_EQ(server.Stop(), 0);
}

TEST(Lifecycle, TimingAddsUp) {
  ServerProcess server;
  const Reply reply = Execute(Connect(server.address()), Request("gelu", {FloatTensor(1 << 20)}));
  ASSERT_TRUE(reply.status.ok());
  const v1::Timing& timing = reply.response.timing();
  EXPECT_GT(timing.copy_in_ns(), 0);
  EXPECT_GT(timing.kernel_ns(), 0);
  EXPECT_GE(timing.total_ns(), timing.queue_ns() + timing.copy_in_ns() + timing.h2d_ns() +
                                   timing.kernel_ns() + timing.d2h_ns());
  EXPECT_EQ(reply.response.launch().bytes_moved(), 8 << 20);
  EXPECT_GT(reply.response.launch().flops(), 0);
  EXPECT_EQ(reply.response.device(), "cpu");
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
