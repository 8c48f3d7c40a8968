// Names of implementations, families and variants, and the row that Describe and Execute choose by
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Kernel picky has two variants of library, refusing and not_compiling, and taking of reference.
// They take any size unless "elements_max" is set.
class ImplementationNamesTest : public ::testing::Test {
 protected:
  // Implementation and variant that ran, or the code and why none did.
  std::pair<std::string, std::string> Runs(const std::string& implementation) {
    v1::ExecuteRequest request = Request("picky", {FloatTensor(16)});
    request.set_implementation(implementation);
    const Reply reply = Execute(channel_, request);
    if (!reply.status.ok())
      return {absl::StrCat(reply.status.error_code()), reply.status.error_message()};
    return {reply.response.implementation(), reply.response.launch().variant()};
  }

  // Reasons why rows did not run, by "IMPLEMENTATION:VARIANT".
  std::map<std::string, std::string> Measures(const std::vector<std::string>& implementations) {
    v1::BenchmarkRequest request = BenchmarkOf("picky", {{16}});
    for (const std::string& name : implementations) request.add_implementations(name);
    request.set_iterations(1);
    grpc::ClientContext context;
    v1::BenchmarkResponse response;
    const grpc::Status status = stub_->Benchmark(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, std::string> results;
    for (const v1::BenchmarkResult& result : response.results())
      results[absl::StrCat(result.implementation(), ":", result.launch().variant())] =
          result.error();
    return results;
  }

  ServerProcess server_{FlagsForHeld({"--devices=cpu"})};
  std::shared_ptr<grpc::Channel> channel_ = Connect(server_.address());
  std::unique_ptr<v1::KernelService::Stub> stub_ = v1::KernelService::NewStub(channel_);
};

TEST_F(ImplementationNamesTest, AreListedOncePerFamilyWithTheirVariants) {
  grpc::ClientContext context;
  v1::ListKernelsResponse list;
  ASSERT_TRUE(stub_->ListKernels(&context, {}, &list).ok());
  for (const v1::KernelInfo& kernel : list.kernels()) {
    if (kernel.name() != "picky") continue;
    ASSERT_EQ(kernel.implementations_size(), 2);
    EXPECT_EQ(kernel.implementations(0).name(), "library");
    EXPECT_EQ(kernel.implementations(0).family(), "library");
    EXPECT_EQ(kernel.implementations(0).device_kind(), "cpu");
    EXPECT_THAT(kernel.implementations(0).variants(), ElementsAre("refusing", "not_compiling"));
    EXPECT_EQ(kernel.implementations(0).summary(),
              "refusing: for tests only; not_compiling: for tests only");
    EXPECT_EQ(kernel.implementations(0).data_types_size(), 3);
    EXPECT_EQ(kernel.implementations(1).name(), "reference");
    EXPECT_THAT(kernel.implementations(1).variants(), ElementsAre("taking"));
    EXPECT_EQ(kernel.implementations(1).summary(), "for tests only");
    return;
  }
  FAIL() << "picky is not listed";
}

TEST_F(ImplementationNamesTest, ARequestNamesAFamilyOrPinsAVariant) {
  for (const char* const name : {"", "auto", "library", "refusing", "library:refusing"})
    EXPECT_THAT(Runs(name), Pair("library", "refusing")) << name;
  for (const char* const name : {"not_compiling", "library:not_compiling"})
    EXPECT_THAT(Runs(name), Pair("library", "not_compiling")) << name;
  EXPECT_THAT(Runs("reference:taking"), Pair("reference", "taking"));
  for (const char* const name :
       {"reference:refusing", "library:", "library:*", ":refusing", "libraryrefusing"})
    EXPECT_THAT(Runs(name),
                Pair("5", HasSubstr("available: library, reference; their variants: "
                                    "library:refusing, library:not_compiling, reference:taking")))
        << name;
  // All variants of an implementation count as one.
  EXPECT_EQ(server_.Sum("warpcall_requests_total", {"implementation=\"library\"", "code=\"OK\""}),
            7);
}

TEST_F(ImplementationNamesTest, ABenchmarkTakesOneVariantOfEachUnlessAllAreAskedFor) {
  EXPECT_THAT(Measures({}),
              UnorderedElementsAre(Pair("library:refusing", ""), Pair("reference:taking", "")));
  EXPECT_THAT(Measures({"library"}), UnorderedElementsAre(Pair("library:refusing", "")));
  EXPECT_THAT(Measures({"library:*"}), UnorderedElementsAre(Pair("library:refusing", ""),
                                                            Pair("library:not_compiling", "")));
  EXPECT_THAT(
      Measures({"library:not_compiling", "taking"}),
      UnorderedElementsAre(Pair("library:not_compiling", ""), Pair("reference:taking", "")));
}

TEST_F(ImplementationNamesTest, VerdictsOfSeveralVariantsAreToldApart) {
  v1::BenchmarkRequest request = BenchmarkOf("picky", {{16}});
  for (const char* const name : {"library:*", "reference"}) request.add_implementations(name);
  // Unstable results have no verdict, and most results of few samples are unstable.
  request.set_iterations(50);
  grpc::ClientContext context;
  const auto reader = stub_->BenchmarkStream(&context, request);
  v1::BenchmarkResponse part, last;
  while (reader->Read(&part)) last = part;
  ASSERT_TRUE(reader->Finish().ok());
  for (const auto& [name, verdict] : last.verdicts())
    EXPECT_THAT(name, ::testing::AnyOf("library:refusing", "library:not_compiling", "reference"))
        << verdict;
}

struct DescribeReply {
  grpc::Status status;
  v1::DescribeResponse response;
};

class DescribeTest : public ::testing::Test {
 protected:
  DescribeReply Describe(const v1::DescribeRequest& request) {
    DescribeReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(50));
    reply.status = stub_->Describe(&context, request, &reply.response);
    return reply;
  }
  // Execute's answer to the same request, without tensor data.
  grpc::Status Execute(const v1::DescribeRequest& request) {
    v1::ExecuteRequest execute;
    execute.set_kernel(request.kernel());
    execute.set_implementation(request.implementation());
    execute.set_device(request.device());
    *execute.mutable_attributes() = request.attributes();
    for (const v1::TensorSpec& input : request.inputs()) {
      v1::Tensor* const tensor = execute.add_inputs();
      tensor->set_data_type(input.data_type());
      *tensor->mutable_shape() = input.shape();
      int64_t bytes = 4;
      for (const int64_t size : input.shape()) bytes *= std::max<int64_t>(size, 0);
      tensor->set_data(std::string(static_cast<size_t>(bytes), '\0'));
    }
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    return stub_->Execute(&context, execute, &response);
  }

  ServerProcess server_{FlagsForHeld()};
  std::unique_ptr<v1::KernelService::Stub> stub_ =
      v1::KernelService::NewStub(Connect(server_.address()));
};

TEST_F(DescribeTest, TellsTheRowThatExecuteRuns) {
  const DescribeReply reply = Describe(DescribeOf("softmax", {{512, 1000}}));
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  const v1::DescribeResponse& told = reply.response;
  EXPECT_EQ(told.device(), "cpu");
  EXPECT_EQ(told.chosen_because(), "order of preference");
  EXPECT_EQ(told.launch().bytes_moved(), 2 * 4 * 512'000);
  EXPECT_GT(told.launch().flops(), 0);
  EXPECT_THAT(told.tolerance(), HasSubstr("unit in the last place"));
  ASSERT_GE(told.files_size(), 1);
  EXPECT_THAT(told.files(0).name(), HasSubstr("kernels/softmax/"));
  EXPECT_EQ(told.files(0).language(), "cpp");
  EXPECT_THAT(told.files(0).text(), HasSubstr("\"" + told.launch().variant() + "\""));
  grpc::ClientContext context;
  v1::ExecuteResponse ran;
  const v1::Tensor x = FloatTensor({512, 1000}, std::vector<float>(512'000));
  ASSERT_TRUE(stub_->Execute(&context, Request("softmax", {x}), &ran).ok());
  EXPECT_EQ(told.launch().variant(), ran.launch().variant());
}

TEST_F(DescribeTest, EachRowOfTheServersListIsToldByItsName) {
  grpc::ClientContext context;
  v1::ListKernelsResponse list;
  ASSERT_TRUE(stub_->ListKernels(&context, {}, &list).ok());
  int described = 0;
  for (const v1::KernelInfo& kernel : list.kernels()) {
    if (kernel.name() != "gelu" && kernel.name() != "matmul") continue;
    for (const v1::ImplementationInfo& row : kernel.implementations()) {
      if (row.device_kind() != "cpu" || !row.unavailable().empty()) continue;
      SCOPED_TRACE(kernel.name() + " " + row.name());
      v1::DescribeRequest request = kernel.name() == "gelu"
                                        ? DescribeOf("gelu", {{64}})
                                        : DescribeOf("matmul", {{64, 32}, {32, 16}});
      request.set_implementation(row.name());
      const DescribeReply reply = Describe(request);
      ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
      EXPECT_EQ(reply.response.implementation(), row.name());
      EXPECT_EQ(reply.response.family(), row.family());
      EXPECT_THAT(reply.response.chosen_because(), HasSubstr(", which is named by the request"));
      EXPECT_EQ(reply.response.grid(), "");
      EXPECT_EQ(reply.response.registers_per_thread(), 0);
      EXPECT_GE(reply.response.files_size(), 1);
      ++described;
    }
  }
  EXPECT_GE(described, 6);
}

TEST_F(DescribeTest, AFamilyIsAPreferenceWithinIt) {
  v1::DescribeRequest request = DescribeOf("gelu", {{64}});
  request.set_implementation("manual");
  const DescribeReply reply = Describe(request);
  EXPECT_EQ(reply.response.family(), "manual");
  EXPECT_EQ(reply.response.chosen_because(),
            "order of preference of the variants of manual, which is named by the request");
}

TEST_F(DescribeTest, RefusesAsExecuteDoes) {
  std::vector<v1::DescribeRequest> requests = {
      DescribeOf("glue", {{4}}), DescribeOf("gelu", {{4, -1}}), DescribeOf("matmul", {{4, 4}}),
      DescribeOf("gelu", {{4}}), DescribeOf("gelu", {{4}}),     DescribeOf("gelu", {{4}})};
  requests[3].set_implementation("nothing");
  requests[4].set_device("cuda:7");
  (*requests[5].mutable_attributes())["approximate"].set_string_value("roughly");
  for (const v1::DescribeRequest& request : requests) {
    const grpc::Status status = Describe(request).status;
    const grpc::Status execute = Execute(request);
    EXPECT_FALSE(status.ok()) << request.ShortDebugString();
    EXPECT_EQ(status.error_code(), execute.error_code()) << request.ShortDebugString();
    EXPECT_EQ(status.error_message(), execute.error_message());
  }
  EXPECT_EQ(server_.Sum("warpcall_inspections_total", {"method=\"describe\""}), requests.size());
}

TEST_F(DescribeTest, ARowThatDoesNotTakeTheProblemSaysWhy) {
  v1::DescribeRequest request = DescribeOf("broken", {{4}});
  request.set_implementation("triton");
  const grpc::Status status = Describe(request).status;
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("its kernels were not compiled"));
  EXPECT_EQ(status.error_message(), Execute(request).error_message());
}

}  // namespace
}  // namespace warpcall::testing
