// A server whose machine cannot run all of its rows: the rows it offers, and its messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "tests/programs.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Three rows of the kernel "broken" go wrong, two lack requirements, and one is not compiled. Two
// seconds of the processor's time are far more than any other row takes.
const std::vector<std::string> kFlags = {"--self_test=quick", "--test_fault_injection",
                                         "--self_test_row_seconds=2"};

const std::map<std::string, std::string>& Reasons() {
  static const auto& reasons = *new std::map<std::string, std::string>{
      {"illegal_instruction", "failed its self-test: crashed with SIGILL"},
      {"endless", "failed its self-test: took longer than 2 s"},
      {"wrong", "failed its self-test: wrong: element 15 of float32[16] is "}};
  return reasons;
}

TEST(SelfTest, RowsThatCrashHangOrAreWrongAreListedAndNotOffered) {
  ServerProcess server(kFlags);
  const auto channel = Connect(server.address());
  const auto stub = v1::KernelService::NewStub(channel);
  grpc::ClientContext context;
  v1::ListKernelsResponse kernels;
  ASSERT_TRUE(stub->ListKernels(&context, {}, &kernels).ok());
  int unavailable = 0;
  for (const v1::KernelInfo& kernel : kernels.kernels()) {
    for (const v1::ImplementationInfo& row : kernel.implementations()) {
      SCOPED_TRACE(kernel.name() + " " + row.name());
      if (kernel.name() != "broken" || row.name() == "reference") {
        EXPECT_EQ(row.unavailable(), "");
        continue;
      }
      ++unavailable;
      if (row.name() == "triton") {
        EXPECT_EQ(row.unavailable(), "its kernels were not compiled");
      } else if (row.name() == "compiled") {
        EXPECT_EQ(row.unavailable(),
                  "no_compiler: its kernels were not compiled; "
                  "uncompilable: error: expected a kernel (float32, case quick)");
      } else {
        ASSERT_EQ(row.variants_size(), 1);
        EXPECT_THAT(row.unavailable(), StartsWith(Reasons().at(row.variants(0))));
      }
    }
  }
  EXPECT_EQ(unavailable, 5);
  for (const auto& [name, reason] : Reasons()) {
    v1::ExecuteRequest request = Request("broken", {FloatTensor(16)});
    request.set_implementation(name);
    const Reply refused = Execute(channel, request);
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(refused.status.error_message(), HasSubstr(absl::StrCat(name, ": ", reason)));
    EXPECT_EQ(server.Sum("warpcall_rows_unavailable",
                         {"kernel=\"broken\"", absl::StrCat("variant=\"", name, "\""),
                          "device_kind=\"cpu\"", "reason=\"self_test\""}),
              1)
        << name;
    EXPECT_TRUE(server.Logs(" variant=" + name));
    EXPECT_TRUE(server.Logs(reason));
  }
  for (const auto& [name, reason] :
       {std::pair("absent", "library"), std::pair("no_compiler", "library"),
        std::pair("uncompilable", "compile")})
    EXPECT_EQ(server.Sum("warpcall_rows_unavailable", {absl::StrCat("variant=\"", name, "\""),
                                                       absl::StrCat("reason=\"", reason, "\"")}),
              1)
        << name;
  EXPECT_EQ(server.Sum("warpcall_rows_unavailable", {"device_kind=\"cpu\""}), 6);
  for (const char* const implementation : {"", "auto", "reference"}) {
    v1::ExecuteRequest request = Request("broken", {FloatTensor(16)});
    request.set_implementation(implementation);
    const Reply reply = Execute(channel, request);
    ASSERT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
    EXPECT_EQ(reply.response.launch().variant(), "plain_copy");
    EXPECT_EQ(reply.response.outputs(0).data(), request.inputs(0).data());
  }
  for (const char* const kernel : {"identity", "gelu", "softmax"})
    EXPECT_TRUE(Execute(channel, Request(kernel, {FloatTensor(64)})).status.ok()) << kernel;
  EXPECT_EQ(server.Stop(), 0);
}

// The log says so at the start, and once a minute while requests have not asked for it.
TEST(SelfTest, AReferenceThatServesInTheirPlaceIsToldOf) {
  ServerProcess server(kFlags);
  const auto channel = Connect(server.address());
  for (const char* const implementation : {"", "auto", "reference", "plain_copy"}) {
    v1::ExecuteRequest request = Request("broken", {FloatTensor(16)});
    request.set_implementation(implementation);
    ASSERT_TRUE(Execute(channel, request).status.ok());
  }
  ASSERT_TRUE(Execute(channel, Request("gelu", {FloatTensor(16)})).status.ok());
  EXPECT_EQ(server.Sum("warpcall_reference_served_total", {"kernel=\"broken\""}), 2);
  EXPECT_EQ(server.Sum("warpcall_reference_served_total"), 2);
  EXPECT_EQ(server.Stop(), 0);
  const std::string log = server.log();
  EXPECT_THAT(log, HasSubstr("level=warning msg=\"only the float64 reference serves a kernel\" "
                             "kernel=broken data_types="));
  EXPECT_THAT(log, Not(HasSubstr("serves a kernel\" kernel=gelu")));
  EXPECT_THAT(log, HasSubstr("level=warning msg=\"the float64 reference serves requests that named "
                             "no implementation\" kernel=broken requests=1 "));
  EXPECT_THAT(log, Not(HasSubstr("requests=2")));
}

TEST(SelfTest, AReferenceThatServesAStepIsToldOf) {
  ServerProcess server(kFlags);
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  v1::ExecuteGraphRequest request;
  v1::GraphInput& input = *request.add_inputs();
  input.set_name("x");
  *input.mutable_tensor() = FloatTensor(16);
  for (const char* const implementation : {"reference", ""}) {
    v1::GraphStep& step = *request.add_steps();
    step.set_name(absl::StrCat("y", request.steps_size()));
    step.set_kernel("broken");
    step.set_implementation(implementation);
    step.add_inputs("x");
    request.add_outputs()->set_name(step.name());
  }
  grpc::ClientContext context;
  v1::ExecuteGraphResponse response;
  const grpc::Status status = stub->ExecuteGraph(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.log(), HasSubstr("serves requests that named no implementation\" "
                                      "kernel=broken requests=1 "));
}

TEST(SelfTest, InspectionsDoNotOfferThemEither) {
  ServerProcess server(kFlags);
  const auto stub = v1::KernelService::NewStub(Connect(server.address()));
  v1::BenchmarkRequest request = BenchmarkOf("broken", {{16}});
  request.set_iterations(1);
  // A request that names no row gets a result of each as well.
  for (const bool names_rows : {false, true}) {
    if (names_rows) {
      for (const auto& [name, reason] : Reasons()) request.add_implementations(name);
      request.add_implementations("plain_copy");
    }
    grpc::ClientContext context;
    v1::BenchmarkResponse response;
    const grpc::Status status = stub->Benchmark(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, std::string> errors;
    for (const v1::BenchmarkResult& result : response.results())
      errors[result.launch().variant()] = result.error();
    EXPECT_EQ(errors["plain_copy"], "");
    for (const auto& [name, reason] : Reasons()) EXPECT_THAT(errors[name], StartsWith(reason));
    if (!names_rows) {
      EXPECT_EQ(errors["absent"], "its kernels were not compiled");
    }
    EXPECT_EQ(errors.size(), names_rows ? 4u : 7u);
  }
  EXPECT_EQ(server.Stop(), 0);
}

// Predicts by the rate that was measured at the start: nothing similar has run before. An H200
// would need milliseconds.
TEST(SelfTest, TheFirstLongRequestIsPredictedByThisMachine) {
  v1::Tensor square = FloatTensor(4096 * 4096);
  square.set_shape(0, 4096);
  square.add_shape(4096);
  v1::ExecuteRequest request = Request("matmul", {square, square});
  request.set_implementation("reference");
  ServerProcess server({"--self_test=quick", "--max_run_seconds=0.1"});
  const Reply reply = Execute(Connect(server.address()), request);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("is predicted to hold its lane for "));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(SelfTest, CheckPrintsTheTableAndEnds) {
  const std::string check = ProgramPath("warpcalld") + " --check";
  const ProgramResult right = RunProgram(check);
  EXPECT_EQ(right.exit_status, 0) << right.out << right.err;
  for (const char* const text :
       {"KERNEL", "VERDICT", "onednn_matmul", "float32,bfloat16", "passed"})
    EXPECT_THAT(right.out, HasSubstr(text));
  EXPECT_THAT(right.out, Not(HasSubstr("failed")));
  const ProgramResult broken = RunProgram(absl::StrCat(check, " ", absl::StrJoin(kFlags, " ")));
  EXPECT_EQ(broken.exit_status, 1) << broken.out << broken.err;
  for (const auto& [name, reason] : Reasons()) EXPECT_THAT(broken.out, HasSubstr(reason));
}

}  // namespace
}  // namespace warpcall::testing
