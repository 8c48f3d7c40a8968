// An implementation is named by its family, and one of its variants after it: in every method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"

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
                Pair("5", HasSubstr("there are: library, reference; their variants: "
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

}  // namespace
}  // namespace warpcall::testing
