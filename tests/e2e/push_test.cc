// Push to a server without a GPU: what a kernel's author is told, and who may ask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/e2e/children.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kKernel[] = R"cu(// warpcall-kernel {
//   "name": "mine", "op": "gelu", "types": ["float32"],
//   "code": {"kind": "cuda", "entry": "mine"},
//   "args": ["x.ptr", "y.ptr", "elements:i64"],
//   "launch": {"grid": ["ceil(elements / 256)"], "block": [256]},
//   "examples": [[[4096]]]
// }
__global__ void mine(const T* x, T* y, long long n) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < n) y[i] = x[i] * normcdff(x[i]);
}
)cu";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

struct Pushed {
  std::vector<v1::PushEvent> events;
  grpc::Status status;

  const v1::PushVerdict& verdict() const { return events.back().verdict(); }
};

v1::PushRequest RequestOf(const std::string& code) {
  v1::PushRequest request;
  request.set_code(code);
  return request;
}

class PushTest : public ::testing::Test {
 protected:
  static Pushed Push(const std::string& address, const v1::PushRequest& request) {
    Pushed pushed;
    grpc::ClientContext context;
    const auto stub = v1::KernelService::NewStub(Connect(address));
    const auto reader = stub->Push(&context, request);
    for (v1::PushEvent event; reader->Read(&event);) pushed.events.push_back(event);
    pushed.status = reader->Finish();
    return pushed;
  }
  Pushed Push(const v1::PushRequest& request) { return Push(server_.address(), request); }
  Pushed Push(const std::string& code) { return Push(RequestOf(code)); }

  // Where a machine cannot compile what strangers push, the verdict says why.
  std::string WhyNoCompiler() {
    const Pushed pushed = Push(kKernel);
    if (pushed.events.size() == 3) return "";
    EXPECT_EQ(pushed.verdict().status(), "NOT_SUPPORTED");
    EXPECT_THAT(pushed.verdict().reason(),
                AnyOf(HasSubstr("nvrtc"), HasSubstr("Landlock"), HasSubstr("seccomp")));
    return absl::StrCat("this machine compiles nothing: ", pushed.verdict().reason());
  }

  double Verdicts(const std::string& status) {
    return server_.Sum("warpcall_pushes_total", {absl::StrCat("status=\"", status, "\"")});
  }

  ServerProcess server_{{"--self_test=off"}};
};

TEST_F(PushTest, WithoutAGpuAKernelIsCompiledAndNotRun) {
  const Pushed pushed = Push(kKernel);
  ASSERT_TRUE(pushed.status.ok()) << pushed.status.error_message();
  ASSERT_GE(pushed.events.size(), 2);
  EXPECT_EQ(pushed.events[0].queued().before(), 0);
  EXPECT_EQ(pushed.verdict().status(), "NOT_SUPPORTED") << pushed.verdict().reason();
  EXPECT_THAT(pushed.verdict().name(), StartsWith("push:mine@"));
  EXPECT_NE(pushed.verdict().seed(), 0);
  EXPECT_NE(pushed.verdict().stamp().server_version(), "");
  EXPECT_EQ(Verdicts("NOT_SUPPORTED"), 1);
  EXPECT_TRUE(Eventually([&] {
    return server_.Logs(absl::StrCat("push=", pushed.verdict().name(), " verdict=NOT_SUPPORTED"));
  })) << server_.log();
  EXPECT_EQ(server_.Sum("warpcall_inspections_total", {"method=\"push\"", "code=\"OK\""}), 1);
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  ASSERT_THAT(pushed.events, SizeIs(3));
  const v1::PushCompiled& compiled = pushed.events[1].compiled();
  EXPECT_EQ(compiled.arch(), "sm_90a");
  EXPECT_EQ(compiled.data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_GT(compiled.compile_ns(), 0);
  EXPECT_EQ(compiled.digest(), pushed.verdict().digest());
  EXPECT_THAT(compiled.kernel(), HasSubstr("mine"));
  EXPECT_THAT(compiled.files(), IsEmpty());
  EXPECT_GT(server_.Sum("warpcall_push_seconds_count", {"stage=\"compile\""}), 0);

  v1::PushRequest with_files = RequestOf(kKernel);
  with_files.set_with_files(true);
  const Pushed again = Push(with_files);
  ASSERT_THAT(again.events, SizeIs(3));
  EXPECT_EQ(again.events[1].compiled().digest(), compiled.digest());
  ASSERT_THAT(again.events[1].compiled().files(), SizeIs(1));
  EXPECT_THAT(again.events[1].compiled().files(0).text(), HasSubstr(".target sm_90a"));
}

TEST_F(PushTest, ACompileErrorHasTheAuthorsLine) {
  const Pushed pushed = Push(Replaced(kKernel, "threadIdx.x;", "threadIdx.q;"));
  ASSERT_TRUE(pushed.status.ok()) << pushed.status.error_message();
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(pushed.verdict().status(), "COMPILE_ERROR");
  EXPECT_THAT(pushed.verdict().reason(), StartsWith("mine.cu(9): error"));
  ASSERT_THAT(pushed.events, SizeIs(3));
  EXPECT_THAT(pushed.events[1].compiled().log(),
              HasSubstr(absl::StrCat(pushed.verdict().reason(), "\n")));
  EXPECT_EQ(Verdicts("COMPILE_ERROR"), 1);
}

TEST_F(PushTest, ArgsThatDoNotFitAreFoundWithoutAGpu) {
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  const std::pair<const char*, const char*> cases[] = {
      {"elements:i32",
       "args[2] is \"elements:i32\", an integer of 4 bytes; mine takes an integer of "
       "8 bytes there"},
      {"elements:i64\", \"1:f32", "args has 4 entries; mine takes 3 parameters"}};
  for (const auto& [argument, reason] : cases) {
    const Pushed pushed = Push(Replaced(kKernel, "elements:i64", argument));
    EXPECT_EQ(pushed.verdict().status(), "INVALID_MANIFEST");
    EXPECT_EQ(pushed.verdict().reason(), reason);
  }
}

TEST_F(PushTest, FilesOfTheServerStayItsOwn) {
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  const auto log_of = [&](const std::string& path) {
    const Pushed pushed = Push(absl::StrCat(kKernel, "#include \"", path, "\"\n"));
    EXPECT_EQ(pushed.verdict().status(), "COMPILE_ERROR");
    return absl::StrReplaceAll(pushed.events.at(1).compiled().log(), {{path, "PATH"}});
  };
  EXPECT_EQ(log_of("/etc/hostname"), log_of("/etc/hostnamf"));
}

TEST_F(PushTest, WhatIsWrongWithAManifestIsAVerdict) {
  for (const auto& [from, to, told] : std::vector<std::array<std::string, 3>>{
           {"\"op\": \"gelu\"", "\"op\": \"geluu\"", "geluu"},
           {"ceil(elements / 256)", "ceil(elements / 0)", "launch.grid[0]"},
           {"\"examples\"", "\"exampels\"", "exampels"},
           {"\"gelu\", \"types\"", "\"gelu\" \"types\"", "no JSON"},
           {"elements:i64", "elements:i65", "i65"}}) {
    const Pushed pushed = Push(Replaced(kKernel, from, to));
    ASSERT_TRUE(pushed.status.ok()) << pushed.status.error_message();
    EXPECT_EQ(pushed.verdict().status(), "INVALID_MANIFEST") << to;
    EXPECT_THAT(pushed.verdict().reason(), HasSubstr(told));
  }
  EXPECT_EQ(Verdicts("INVALID_MANIFEST"), 5);
}

TEST_F(PushTest, RequestsThatAreNoneEndWithAStatus) {
  const auto expect = [&](const v1::PushRequest& request, grpc::StatusCode code,
                          const std::string& told) {
    const Pushed pushed = Push(request);
    EXPECT_EQ(pushed.status.error_code(), code) << told;
    EXPECT_THAT(pushed.status.error_message(), HasSubstr(told));
    for (const v1::PushEvent& event : pushed.events) EXPECT_TRUE(event.has_queued());
  };
  expect(RequestOf(""), grpc::StatusCode::INVALID_ARGUMENT, "no code");
  expect(RequestOf("__global__ void f() {}"), grpc::StatusCode::INVALID_ARGUMENT,
         "does not begin with the manifest");
  expect(RequestOf(absl::StrCat(kKernel, std::string(4 << 20, ' '))),
         grpc::StatusCode::INVALID_ARGUMENT, "the limit is 4194304");
  expect(RequestOf(absl::StrCat(kKernel, std::string(8 << 20, ' '))),
         grpc::StatusCode::RESOURCE_EXHAUSTED, "the limit of this method is");
  v1::PushRequest request = RequestOf(kKernel);
  request.set_serve(true);
  expect(request, grpc::StatusCode::UNIMPLEMENTED, "does not serve them yet");
  request = RequestOf(kKernel);
  request.set_device("cuda:7");
  expect(request, grpc::StatusCode::NOT_FOUND, "cuda:7");
  request = RequestOf(kKernel);
  request.set_timeout_ns(61'000'000'000);
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "timeout_ns is 61000000000");
  request = RequestOf(kKernel);
  request.add_compare_with("triton_of_mine");
  expect(request, grpc::StatusCode::NOT_FOUND, "triton_of_mine");
  request = RequestOf(kKernel);
  request.add_problems()->add_inputs()->set_data_type(v1::DATA_TYPE_FLOAT32);
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "problem 0: ");
  request = RequestOf(kKernel);
  for (int i = 0; i < 65; ++i) request.add_problems();
  expect(request, grpc::StatusCode::INVALID_ARGUMENT, "65 problems are named; the limit is 64");
}

TEST_F(PushTest, ProblemsOutsideTheRangesAreNotSupported) {
  v1::PushRequest request = RequestOf(kKernel);
  v1::TensorSpec* const input = request.add_problems()->add_inputs();
  input->set_data_type(v1::DATA_TYPE_FLOAT16);
  input->add_shape(5);
  const Pushed pushed = Push(request);
  EXPECT_EQ(pushed.verdict().status(), "NOT_SUPPORTED");
  EXPECT_THAT(pushed.verdict().reason(), HasSubstr("not for float16"));
}

// No compiler is done with it in 60 s.
constexpr char kEndless[] = R"cu(
template <int A, int B> struct F {
  static constexpr int v = F<A - 1, B * 2>::v + F<A - 1, B * 2 + 1>::v;
};
template <int B> struct F<0, B> { static constexpr int v = 1; };
__device__ int x = F<28, 1>::v;
)cu";

TEST_F(PushTest, TheCallersLimitEndsTheCallAndIsNoVerdict) {
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  v1::PushRequest request = RequestOf(absl::StrCat(kKernel, kEndless));
  // The server's thread reads the second when its turn has come.
  for (const size_t bytes : {size_t{0}, size_t{512} << 10}) {
    request.mutable_code()->append(bytes, '\n');
    request.set_timeout_ns(500'000'000);
    const Pushed pushed = Push(request);
    EXPECT_EQ(pushed.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_THAT(pushed.status.error_message(),
                AllOf(StartsWith("the push took longer than its limit of 500 ms: it waited "),
                      HasSubstr(" in the queue; ")));
    EXPECT_THAT(pushed.events, SizeIs(1));
  }
  EXPECT_EQ(Verdicts("COMPILE_ERROR"), 0);
  EXPECT_EQ(Verdicts("TIMEOUT"), 0);
}

// The second has all of its time, though it waited for as long.
TEST_F(PushTest, TheServersLimitIsATimeoutAndCountsFromTheQueuesEnd) {
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  const ServerProcess server({"--self_test=off", "--inspect_seconds=1"});
  const v1::PushRequest request = RequestOf(absl::StrCat(kKernel, kEndless));
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  grpc::ClientContext context;
  const auto first = stub->Push(&context, request);
  v1::PushEvent queued;
  ASSERT_TRUE(first->Read(&queued));
  const Pushed second = Push(server.address(), request);
  Pushed pushed;
  for (v1::PushEvent event; first->Read(&event);) pushed.events.push_back(event);
  pushed.status = first->Finish();
  ASSERT_THAT(second.events, SizeIs(2)) << second.status.error_message();
  EXPECT_EQ(second.events[0].queued().before(), 1);
  const Pushed* const both[] = {&pushed, &second};
  for (const Pushed* each : both) {
    ASSERT_TRUE(each->status.ok()) << each->status.error_message();
    EXPECT_EQ(each->verdict().status(), "TIMEOUT");
    EXPECT_THAT(each->verdict().reason(),
                AllOf(StartsWith("compiling was stopped after "),
                      EndsWith("s; the server judges a push for at most 1.00 s")));
  }
}

TEST_F(PushTest, TheServersOwnLimitIsOf60Seconds) {
  if (const std::string why = WhyNoCompiler(); !why.empty()) GTEST_SKIP() << why;
  const auto stub = v1::KernelService::NewStub(Connect(server_.address()));
  grpc::ClientContext context;
  const auto call = stub->Push(&context, RequestOf(absl::StrCat(kKernel, kEndless)));
  // Its process knows whose the deadline is: the caller has none.
  EXPECT_TRUE(Eventually([&] { return ChildWith(server_.pid(), "--limit_ns=60000000000") > 0; }));
  context.TryCancel();
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(PushTest, NothingStaysBehind) {
  for (int i = 0; i < 8; ++i)
    EXPECT_TRUE(Push(i % 2 == 0 ? kKernel : "// warpcall-kernel {\n// }\n").status.ok());
  EXPECT_TRUE(Eventually([&] { return ChildWith(server_.pid(), "--method=push") <= 0; }));
  EXPECT_TRUE(Eventually([&] { return ChildWith(server_.pid(), "compiler") <= 0; }));
}

TEST(PushAccessTest, OffIsOff) {
  ServerProcess server({"--self_test=off", "--push=off"});
  grpc::ClientContext context;
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  const grpc::Status status = stub->Push(&context, RequestOf(kKernel))->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("push is off"));
}

}  // namespace
}  // namespace warpcall::testing
