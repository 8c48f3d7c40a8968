// Benchmark and Profile through the real server, which answers them from a process of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Waits until the gate opens.
v1::BenchmarkRequest HeldBenchmark(const Gate& gate) {
  v1::BenchmarkRequest request = BenchmarkOf("held", {{4}});
  (*request.mutable_attributes())["gate"].set_string_value(gate.path());
  return request;
}

// So that the process of a test's call is known from the server's own, which measures bandwidths.
void Trace(grpc::ClientContext* context) {
  context->AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
}
pid_t TracedChild(const ServerProcess& server) { return ChildWith(server.pid(), "--traceparent="); }

bool HasPushback(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms") == 1;
}

struct BenchmarkReply {
  grpc::Status status;
  v1::BenchmarkResponse response;
};

struct ProfileReply {
  grpc::Status status;
  v1::ProfileResponse response;
  // Number of calls of each row.
  std::map<std::string, int64_t> Calls() const {
    std::map<std::string, int64_t> calls;
    for (const v1::ProfileRow& row : response.rows()) calls[row.name()] += row.calls();
    return calls;
  }
};

ProfileReply Profile(v1::KernelService::Stub* stub, const v1::ProfileRequest& request) {
  ProfileReply reply;
  grpc::ClientContext context;
  reply.status = stub->Profile(&context, request, &reply.response);
  return reply;
}

void ExpectRefusal(v1::KernelService::Stub* stub, const v1::ProfileRequest& request,
                   grpc::StatusCode code, const std::string& message) {
  const grpc::Status status = Profile(stub, request).status;
  EXPECT_EQ(status.error_code(), code) << message;
  EXPECT_THAT(status.error_message(), HasSubstr(message));
}

class InspectTest : public ::testing::Test {
 protected:
  BenchmarkReply Benchmark(const v1::BenchmarkRequest& request) {
    BenchmarkReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(140));
    reply.status = stub_->Benchmark(&context, request, &reply.response);
    return reply;
  }

  ServerProcess server_{FlagsForHeld()};
  std::shared_ptr<grpc::Channel> channel_ = Connect(server_.address());
  std::unique_ptr<v1::KernelService::Stub> stub_ = v1::KernelService::NewStub(channel_);
};

// If arithmetic may bound a kernel, its ceiling is reported in the inputs' type.
TEST_F(InspectTest, MeasuresTheCeilingOfArithmeticInTheInputsType) {
  const auto ceiling_of = [this](const std::string& kernel, const Shapes& shapes,
                                 v1::DataType type) {
    v1::BenchmarkRequest request = BenchmarkOf(kernel, shapes);
    for (v1::TensorSpec& input : *request.mutable_inputs()) input.set_data_type(type);
    request.add_implementations("library");
    request.set_iterations(3);
    const BenchmarkReply reply = Benchmark(request);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    return reply.response.flops_ceiling();
  };
  for (const v1::DataType type : {v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT32}) {
    const double ceiling = ceiling_of("matmul", {{256, 256}, {256, 256}}, type);
    EXPECT_GT(ceiling, 1e8) << type;
    EXPECT_LT(ceiling, 1e14) << type;
  }
  EXPECT_EQ(ceiling_of("gelu", {{4096}}, v1::DATA_TYPE_BFLOAT16), 0);
}

// If a kernel writes next to nothing, its shares are of reads.
TEST_F(InspectTest, MeasuresReadsBesideAKernelThatReads) {
  v1::BenchmarkRequest request = BenchmarkOf("matmul", {{1, 500}, {500, 700}});
  request.add_implementations("cpu");
  const BenchmarkReply reply = Benchmark(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  const double reads = reply.response.read_ceiling_bytes_per_second();
  EXPECT_GT(reads, 0);
  EXPECT_GT(reply.response.ceiling_bytes_per_second(), 0);
  ASSERT_EQ(reply.response.results_size(), 1);
  const v1::BenchmarkResult& result = reply.response.results(0);
  EXPECT_NEAR(result.fraction_of_ceiling(), result.bytes_per_second() / reads, 1e-6);
}

TEST_F(InspectTest, TimesEveryRowThatFitsBesideTheCopyCeiling) {
  const BenchmarkReply reply = Benchmark(BenchmarkOf("softmax", {{512, 1000}}));
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(reply.response.device(), "cpu");
  EXPECT_GT(reply.response.ceiling_bytes_per_second(), 1e8);
  EXPECT_EQ(reply.response.read_ceiling_bytes_per_second(), 0);
  std::vector<std::string> families;
  for (const v1::BenchmarkResult& result : reply.response.results()) {
    SCOPED_TRACE(result.implementation());
    families.push_back(result.family());
    EXPECT_EQ(result.error(), "");
    EXPECT_GT(result.min_ns(), 0);
    EXPECT_LE(result.min_ns(), result.median_ns());
    EXPECT_LE(result.median_ns(), result.p90_ns());
    EXPECT_GE(result.mean_ns(), result.min_ns());
    EXPECT_GE(result.iterations(), 1);
    EXPECT_LE(result.median_low_ns(), result.median_ns());
    EXPECT_GE(result.median_high_ns(), result.median_ns());
    EXPECT_TRUE(result.unstable() || result.noise() <= 0.05) << result.noise();
    // An unstable result may still be the fastest, but has no other rank.
    if (result.unstable())
      EXPECT_FALSE(absl::StartsWith(result.verdict(), "slower")) << result.verdict();
    else
      EXPECT_NE(result.verdict(), "");
    EXPECT_LE(result.max_error(), 1);
    EXPECT_GT(result.relative_error(), 0);
    EXPECT_LT(result.relative_error(), 1e-6);
    EXPECT_EQ(result.launch().bytes_moved(), 2 * 4 * 512'000);
    EXPECT_NEAR(result.bytes_per_second(), 2 * 4 * 512e3 / (result.median_ns() / 1e9),
                0.01 * result.bytes_per_second());
    EXPECT_NEAR(result.fraction_of_ceiling(),
                result.bytes_per_second() / reply.response.ceiling_bytes_per_second(), 1e-6);
  }
  EXPECT_THAT(families, ::testing::UnorderedElementsAre("cpu", "library", "manual", "reference"));
  // The ceiling is known to everyone from now on.
  grpc::ClientContext context;
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(stub_->ListDevices(&context, {}, &devices).ok());
  EXPECT_GE(devices.devices(0).measured_bandwidth_bytes_per_second(),
            reply.response.ceiling_bytes_per_second());
  EXPECT_GT(server_.Sum("warpcall_device_bandwidth_ceiling_bytes_per_second"), 0);
}

TEST_F(InspectTest, TimesTheRowsThatAreNamedOnceEach) {
  v1::BenchmarkRequest request = BenchmarkOf("gelu", {{10'000}});
  for (const char* const name : {"cpu", "float64", "simd_fused"}) request.add_implementations(name);
  request.set_iterations(7);
  const BenchmarkReply reply = Benchmark(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  ASSERT_EQ(reply.response.results_size(), 2);
  EXPECT_EQ(reply.response.results(0).launch().variant(), "simd_fused");
  EXPECT_EQ(reply.response.results(0).iterations(), 7);
  EXPECT_EQ(reply.response.results(1).launch().variant(), "float64");
}

TEST_F(InspectTest, RefusesWithValueAndLimit) {
  struct Case {
    v1::BenchmarkRequest request;
    grpc::StatusCode code;
    std::string message;
  };
  std::vector<Case> cases;
  const auto add = [&](grpc::StatusCode code, const std::string& message) {
    return &cases.emplace_back(Case{BenchmarkOf("gelu", {{16}}), code, message}).request;
  };
  add(grpc::NOT_FOUND, "kernel \"relu\"")->set_kernel("relu");
  add(grpc::NOT_FOUND, "implementation \"fast\"")->add_implementations("fast");
  add(grpc::NOT_FOUND, "available: cpu")->set_device("cuda:0");
  add(grpc::INVALID_ARGUMENT, "gelu takes 1 input")->clear_inputs();
  add(grpc::INVALID_ARGUMENT, "data type 9")->mutable_inputs(0)->set_data_type(v1::DataType(9));
  add(grpc::INVALID_ARGUMENT, "dimension 0 is -1")->mutable_inputs(0)->set_shape(0, -1);
  add(grpc::INVALID_ARGUMENT, "iterations is 100001; it must be")->set_iterations(100'001);
  add(grpc::INVALID_ARGUMENT, "warmup_iterations is -1")->set_warmup_iterations(-1);
  add(grpc::INVALID_ARGUMENT, "timeout_ns is -1; it must be")->set_timeout_ns(-1);
  add(grpc::INVALID_ARGUMENT, "max_noise is 1.5; it must be")->set_max_noise(1.5);
  add(grpc::INVALID_ARGUMENT, "max_noise is nan")->set_max_noise(NAN);
  add(grpc::INVALID_ARGUMENT, "method is \"slow\"; it must be burst or settled")
      ->set_method("slow");
  v1::BenchmarkRequest* const settled =
      add(grpc::INVALID_ARGUMENT, "iterations is 5; it must be 0 with method \"settled\"");
  settled->set_method("settled");
  settled->set_iterations(5);
  (*add(grpc::INVALID_ARGUMENT, "")->mutable_attributes())["approximate"].set_string_value("no");
  add(grpc::RESOURCE_EXHAUSTED, "(benchmark_mib)")
      ->mutable_inputs(0)
      ->set_shape(0, int64_t{1} << 40);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    const BenchmarkReply reply = Benchmark(c.request);
    EXPECT_EQ(reply.status.error_code(), c.code);
    EXPECT_THAT(reply.status.error_message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(Benchmark(BenchmarkOf("gelu", {{16}})).status.ok());
}

TEST_F(InspectTest, NothingToComputeIsNoError) {
  const BenchmarkReply reply = Benchmark(BenchmarkOf("gelu", {{0, 5}}));
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  for (const v1::BenchmarkResult& result : reply.response.results()) {
    EXPECT_EQ(result.error(), "");
    EXPECT_EQ(result.bytes_per_second(), 0);
  }
}

TEST_F(InspectTest, ProfilesWhatARequestDoes) {
  v1::ProfileRequest request;
  *request.mutable_request() = Request("softmax", {FloatTensor(300'000)});
  request.mutable_request()->set_request_id("look at me");
  request.set_iterations(2);
  request.set_trace(true);
  grpc::ClientContext context;
  Trace(&context);
  v1::ProfileResponse response;
  const grpc::Status status = stub_->Profile(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.device(), "cpu");
  EXPECT_EQ(response.iterations(), 2);
  EXPECT_NE(response.counters_unavailable(), "");
  std::map<std::string, const v1::ProfileRow*> rows;
  for (const v1::ProfileRow& row : response.rows()) rows[row.name()] = &row;
  ASSERT_EQ(rows.count(response.variant()), 1u);
  const v1::ProfileRow& kernel = *rows[response.variant()];
  EXPECT_EQ(kernel.kind(), "kernel");
  EXPECT_EQ(kernel.calls(), 2);
  EXPECT_DOUBLE_EQ(kernel.mean_ns(), static_cast<double>(kernel.total_ns()) / 2);
  EXPECT_EQ(kernel.achieved_occupancy(), -1);
  for (const char* const phase : {"queue", "copy_in", "enqueue", "run"})
    EXPECT_EQ(rows.count(phase), 1u) << phase;
  ASSERT_EQ(rows.count("cpu thread 0"), 1u);
  EXPECT_EQ(rows["cpu thread 0"]->kind(), "thread");
  ASSERT_EQ(rows.count("page faults"), 1u);
  EXPECT_EQ(rows["page faults"]->kind(), "counter");
  const auto trace = nlohmann::json::parse(response.trace_json());
  EXPECT_EQ(trace["otherData"]["request_id"], "look at me");
  EXPECT_THAT(trace["otherData"]["traceparent"].get<std::string>(),
              StartsWith("00-0af7651916cd43dd8448eb211c80319c"));
  EXPECT_GT(trace["traceEvents"].size(), 10u);
  EXPECT_TRUE(server_.Logs("request_id=\"look at me\""));
  EXPECT_TRUE(server_.Logs("trace_id=0af7651916cd43dd8448eb211c80319c"));
}

// One of random inputs.
v1::ProfileRequest ProfileOf(const std::string& kernel, const std::vector<int64_t>& shape) {
  v1::ProfileRequest request;
  request.mutable_request()->set_kernel(kernel);
  v1::TensorSpec* input = request.add_input_specs();
  input->set_data_type(v1::DATA_TYPE_BFLOAT16);
  input->mutable_shape()->Assign(shape.begin(), shape.end());
  return request;
}

// Keeps the calling thread, and the processes that it starts, on one core, which threads of its own
// want, too.
class BusyCore {
 public:
  BusyCore() {
    sched_getaffinity(0, sizeof(before_), &before_);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    for (std::thread& thread : threads_) thread = std::thread([this] { Spin(); });
  }
  ~BusyCore() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
    sched_setaffinity(0, sizeof(before_), &before_);
  }

 private:
  // Spins at the priority of a profile's process, with which it shares a core's time.
  void Spin() const {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
    while (!done_) {
    }
  }

  cpu_set_t before_;
  std::atomic<bool> done_{false};
  std::thread threads_[4];
};

TEST(InspectOnABusyCoreTest, AProfileSaysThatItIsInconclusive) {
  if (!std::ifstream("/proc/self/schedstat").good())
    GTEST_SKIP() << "this system does not tell for how long threads wait for a core";
  const BusyCore busy;
  const ServerProcess server;
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  const ProfileReply reply = Profile(stub.get(), ProfileOf("identity", {16 << 20}));
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_THAT(reply.response.inconclusive(),
              ::testing::MatchesRegex("other work took [0-9]+ % of the threads' time"));
}

TEST_F(InspectTest, ProfilesAKernelOnInputsThatItMakes) {
  // Over the message limit, which a request that brings nothing has no part in.
  v1::ProfileRequest request = ProfileOf("softmax", {2 << 10, 1 << 10});
  const ServerProcess server({"--max_message_mib=1"});
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  const ProfileReply reply = Profile(stub.get(), request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_EQ(reply.response.iterations(), 3);
  EXPECT_EQ(reply.Calls()[reply.response.variant()], 3);
  EXPECT_EQ(reply.Calls()["enqueue"], 3);
  for (const char* const phase : {"queue", "copy_in"})
    EXPECT_EQ(reply.Calls().count(phase), 0u) << phase;
}

TEST_F(InspectTest, ProfilesTheRequestOfInputsThatItMakes) {
  v1::ProfileRequest request = ProfileOf("gelu", {100'000});
  request.set_request_path(true);
  const ProfileReply reply = Profile(stub_.get(), request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  for (const std::string& name : {reply.response.variant(), std::string("queue"),
                                  std::string("copy_in"), std::string("enqueue")})
    EXPECT_EQ(reply.Calls()[name], 3) << name;
}

TEST(Inspect, ProfileOfInputsThatItMakesIsLimited) {
  ServerProcess server({"--max_message_mib=1", "--benchmark_mib=1024"});
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  const auto expect_refusal = [&](const v1::ProfileRequest& request, grpc::StatusCode code,
                                  const std::string& message) {
    ExpectRefusal(stub.get(), request, code, message);
  };
  v1::ProfileRequest both = ProfileOf("gelu", {16});
  *both.mutable_request()->add_inputs() = FloatTensor(16);
  expect_refusal(both, grpc::INVALID_ARGUMENT, "1 request.inputs and 1 input_specs");
  expect_refusal(ProfileOf("gelu", {-1}), grpc::INVALID_ARGUMENT, "dimension 0 is -1");
  expect_refusal(ProfileOf("matmul", {4, 4}), grpc::INVALID_ARGUMENT, "matmul takes 2 inputs");
  expect_refusal(ProfileOf("gelu", {(int64_t{1} << 28) + 64}), grpc::RESOURCE_EXHAUSTED,
                 "profiling these shapes takes 1073742336 bytes; the limit is 1073741824 "
                 "(benchmark_mib)");
  v1::ProfileRequest request = ProfileOf("gelu", {(1 << 19) + 1});
  request.set_request_path(true);
  expect_refusal(request, grpc::RESOURCE_EXHAUSTED,
                 "has 1048578 bytes; the limit is 1048576 (max_message_mib)");
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(InspectTest, ProfileRefusesWhatExecuteRefuses) {
  const auto expect_refusal = [&](const v1::ProfileRequest& request, const std::string& message) {
    ExpectRefusal(stub_.get(), request, grpc::INVALID_ARGUMENT, message);
  };
  v1::ProfileRequest request;
  *request.mutable_request() = Request("gelu", {FloatTensor(16)});
  request.mutable_request()->set_request_id(std::string(257, 'x'));
  expect_refusal(request, "request_id has 257 bytes; the limit is 256");
  request.mutable_request()->clear_request_id();
  request.set_iterations(1001);
  expect_refusal(request, "iterations is 1001");
  request.clear_iterations();
  request.mutable_request()->mutable_inputs(0)->mutable_data()->pop_back();
  expect_refusal(request, "63 bytes of data");
  EXPECT_EQ(server_.Sum("warpcall_inspections_total",
                        {"method=\"profile\"", "code=\"INVALID_ARGUMENT\""}),
            3);
}

// Each empty input costs two bytes to send and a hundred to hold.
TEST_F(InspectTest, RefusesMessagesThatWouldTakeMuchMemoryToRead) {
  v1::BenchmarkRequest request = BenchmarkOf("gelu", {{16}});
  for (int i = 0; i < 2'000'000; ++i) request.add_inputs();
  const int64_t before = server_.PeakResidentBytes();
  const BenchmarkReply reply = Benchmark(request);
  EXPECT_EQ(reply.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("bytes; the limit of this method is 65536"));
  v1::ProfileRequest profile;
  profile.mutable_request()->set_kernel("gelu");
  for (int i = 0; i < 2'000'000; ++i) profile.mutable_request()->add_inputs();
  EXPECT_EQ(Profile(stub_.get(), profile).status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_LT(server_.PeakResidentBytes() - before, 64 << 20);
}

TEST_F(InspectTest, OneConnectionDoesNotFillTheQueue) {
  const Gate gate;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> calls;
  std::atomic<int> refused{0};
  for (int i = 0; i < 12; ++i) {
    grpc::ClientContext* const context =
        contexts.emplace_back(std::make_unique<grpc::ClientContext>()).get();
    calls.emplace_back([this, context, &gate, &refused] {
      v1::BenchmarkResponse response;
      refused += stub_->Benchmark(context, HeldBenchmark(gate), &response).error_code() ==
                 grpc::RESOURCE_EXHAUSTED;
    });
  }
  EXPECT_TRUE(Eventually([&] { return refused.load() >= 6; }));
  EXPECT_GE(server_.Sum("warpcall_rejected_total", {"inspect_queue"}), 6);
  EXPECT_EQ(server_.Sum("warpcall_rejected_total", {"queue_requests"}), 0);  // the requests' limit
  // Another client waits its turn, and its deadline ends that, not a full queue.
  const auto other = v1::KernelService::NewStub(Connect(server_.address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  v1::BenchmarkResponse response;
  EXPECT_EQ(other->Benchmark(&context, BenchmarkOf("gelu", {{16}}), &response).error_code(),
            grpc::DEADLINE_EXCEEDED);
  for (const auto& open : contexts) open->TryCancel();
  for (std::thread& call : calls) call.join();
}

// One thread's loop that does not end. It is as urgent as any, or it would measure the scheduler.
TEST_F(InspectTest, ExecuteGoesOnBesideABenchmarkThatTakesAllItCan) {
  grpc::ClientContext context;
  Trace(&context);
  std::thread benchmark([&] {
    v1::BenchmarkRequest request = BenchmarkOf("broken", {{16}});
    request.add_implementations("endless");
    v1::BenchmarkResponse response;
    EXPECT_EQ(stub_->Benchmark(&context, request, &response).error_code(), grpc::CANCELLED);
  });
  pid_t child = -1;
  EXPECT_TRUE(Eventually([&] {
    child = TracedChild(server_);
    return child > 0;
  }));
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(child)),
            getpriority(PRIO_PROCESS, static_cast<id_t>(server_.pid())));
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(Execute(channel_, Request("gelu", {FloatTensor(100'000)})).status.ok());
  // The process lives only as long as its client is interested.
  context.TryCancel();
  benchmark.join();
  EXPECT_TRUE(Eventually([&] { return TracedChild(server_) < 0; }));
  EXPECT_TRUE(Benchmark(BenchmarkOf("gelu", {{16}})).status.ok());
}

TEST(Inspect, DrainingFinishesWhatRunsAndRefusesMore) {
  ServerProcess server(FlagsForHeld({"--drain_seconds=600"}));
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  Gate gate;
  std::thread benchmark([&] {
    grpc::ClientContext context;
    Trace(&context);
    v1::BenchmarkResponse response;
    const grpc::Status status = stub->Benchmark(&context, HeldBenchmark(gate), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.results_size(), 1);
  });
  EXPECT_TRUE(Eventually([&] { return TracedChild(server) > 0; }));
  server.Signal(SIGTERM);
  EXPECT_TRUE(server.Logs("msg=draining"));
  grpc::ClientContext context;
  v1::BenchmarkResponse response;
  EXPECT_EQ(stub->Benchmark(&context, BenchmarkOf("gelu", {{16}}), &response).error_code(),
            grpc::UNAVAILABLE);
  gate.Open();
  EXPECT_EQ(server.Wait(), 0);
  benchmark.join();
}

// Begins a BenchmarkStream that the drain cuts off, then calls until `ended`, as clients that retry
// do: the connection stays open for a while.
void ExpectUnavailable(const std::string& address, const v1::BenchmarkRequest& held,
                       const std::atomic<bool>& ended) {
  const auto stub = v1::KernelService::NewStub(Connect(address));
  grpc::ClientContext context;
  Trace(&context);
  const auto stream = stub->BenchmarkStream(&context, held);
  v1::BenchmarkResponse response;
  while (stream->Read(&response)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("drain_seconds"));
  EXPECT_TRUE(HasPushback(context));
  bool was_refused = false;
  while (!ended) {
    grpc::ClientContext again;
    const grpc::Status refused = stub->Benchmark(&again, BenchmarkOf("gelu", {{16}}), &response);
    ASSERT_EQ(refused.error_code(), grpc::UNAVAILABLE) << refused.error_message();
    if (refused.error_message() != "the server is draining") continue;
    was_refused = true;
    EXPECT_TRUE(HasPushback(again));
  }
  EXPECT_TRUE(was_refused);
}

TEST(Inspect, TheServersEndIsTheChilds) {
  const Gate gate;
  pid_t child = 0;
  std::atomic<bool> ended = false;
  std::thread benchmark;
  {
    ServerProcess server(FlagsForHeld({"--drain_seconds=0.1"}));
    benchmark = std::thread([&ended, address = server.address(), held = HeldBenchmark(gate)] {
      ExpectUnavailable(address, held, ended);
    });
    EXPECT_TRUE(Eventually([&] { return (child = TracedChild(server)) > 0; }));
    EXPECT_EQ(server.Stop(), 3);  // an accepted call was not done
    EXPECT_THAT(server.log(), HasSubstr("running=0 streams=0 inspections=1"));
  }
  ended = true;
  benchmark.join();
  EXPECT_TRUE(Eventually([&] { return kill(child, 0) != 0; }));
}

}  // namespace
}  // namespace warpcall::testing
