// Tune through the real server: the server serves the results that a process of its own measured
// from then on, and after a new start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "tests/temp_folder.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct TuneReply {
  grpc::Status status;
  v1::BenchmarkResponse response;
};

class TunedServer {
 public:
  explicit TunedServer(const std::vector<std::string>& flags) : server_(flags) {}

  // Tunes by `rows` alone, quickly.
  TuneReply Tune(v1::BenchmarkRequest request, const std::vector<std::string>& rows) {
    for (const std::string& row : rows) request.add_implementations(row);
    request.set_iterations(5);
    request.set_warmup_iterations(1);
    TuneReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));
    reply.status = stub_->Tune(&context, request, &reply.response);
    return reply;
  }
  // Returns the variant that runs for a tensor of so many elements, or the error.
  std::string Runs(const std::string& kernel, int64_t elements,
                   const std::string& implementation = "") {
    v1::ExecuteRequest request = Request(kernel, {FloatTensor(elements)});
    request.set_implementation(implementation);
    const Reply reply = Execute(channel_, request);
    return reply.status.ok() ? reply.response.launch().variant() : reply.status.error_message();
  }
  std::string Why(const std::string& kernel, int64_t elements,
                  const std::string& implementation = "") {
    v1::DescribeRequest request = DescribeOf(kernel, {{elements}});
    request.set_implementation(implementation);
    grpc::ClientContext context;
    v1::DescribeResponse response;
    const grpc::Status status = stub_->Describe(&context, request, &response);
    return status.ok() ? absl::StrCat(response.launch().variant(), ": ", response.chosen_because())
                       : status.error_message();
  }
  double Choices(const std::string& implementation, const std::string& why) {
    return server_.Sum("warpcall_auto_choices_total",
                       {"kernel=\"gelu\"", absl::StrCat("implementation=\"", implementation, "\""),
                        "device=\"cpu\"", absl::StrCat("why=\"", why, "\"")});
  }
  v1::KernelInfo Listed(const std::string& kernel, bool with_tuned) {
    grpc::ClientContext context;
    v1::ListKernelsRequest request;
    request.set_with_tuned(with_tuned);
    v1::ListKernelsResponse list;
    EXPECT_TRUE(stub_->ListKernels(&context, request, &list).ok());
    for (const v1::KernelInfo& info : list.kernels())
      if (info.name() == kernel) return info;
    return {};
  }

  ServerProcess& process() { return server_; }

 private:
  ServerProcess server_;
  std::shared_ptr<grpc::Channel> channel_ = Connect(server_.address());
  std::unique_ptr<v1::KernelService::Stub> stub_ = v1::KernelService::NewStub(channel_);
};

class TuneTest : public ::testing::Test {
 protected:
  std::string Cache() const { return absl::StrCat("--tuning_cache=", folder_.Path("tuning")); }
  TempFolder folder_;
};

TEST_F(TuneTest, WhatIsFastestAndRightIsServedFromThenOnAndAfterARestart) {
  std::string preferred, served, family;
  {
    TunedServer server({"--devices=cpu", Cache()});
    preferred = server.Runs("gelu", 1024);
    const TuneReply reply = server.Tune(BenchmarkOf("gelu", {{1024}}), {"manual", "reference"});
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    EXPECT_EQ(reply.response.device(), "cpu");
    EXPECT_GT(reply.response.stamp().started_unix_ns(), 0);
    ASSERT_GE(reply.response.results_size(), 2);
    const v1::BenchmarkResult* fastest = &reply.response.results(0);
    for (const v1::BenchmarkResult& result : reply.response.results()) {
      EXPECT_EQ(result.error(), "");
      EXPECT_LE(result.max_error(), 1);
      EXPECT_GT(result.checked_elements(), 0);
      if (result.median_ns() < fastest->median_ns()) fastest = &result;
    }
    served = fastest->launch().variant();
    family = fastest->implementation();
    ASSERT_NE(served, preferred);
    EXPECT_EQ(server.Runs("gelu", 1024), served);
    EXPECT_EQ(server.Runs("gelu", 1024, "auto"), served);
    EXPECT_EQ(server.Runs("gelu", 1100), served);            // its bucket
    EXPECT_EQ(server.Runs("gelu", 1300), preferred);         // the next bucket
    EXPECT_EQ(server.Runs("gelu", 1024, "cpu"), preferred);  // no row of that family was measured
    EXPECT_THAT(server.Why("gelu", 1024),
                StartsWith(absl::StrCat(served, ": tuned: ", family, ":", served)));
    EXPECT_THAT(server.Why("gelu", 1024), HasSubstr("measured for float32[1024] on "));
    EXPECT_EQ(server.Why("gelu", 1300), preferred + ": order of preference");
    EXPECT_EQ(server.Why("gelu", 1024, preferred), preferred + ": named by the request");
    EXPECT_THAT(server.Why("gelu", 1024, "reference"),
                HasSubstr("; the fastest variant of reference, which is named by the request"));
    EXPECT_EQ(server.Choices(family, "tuned"), 3);
    EXPECT_EQ(server.Choices(family, "order"), 0);
    EXPECT_EQ(server.Choices("cpu", "order"), 2);  // before, and of another class
    EXPECT_EQ(server.process().Sum("warpcall_auto_choices_total"), 5);
    EXPECT_EQ(
        server.process().Sum("warpcall_inspections_total", {"method=\"tune\"", "code=\"OK\""}), 1);
    EXPECT_EQ(server.process().Stop(), 0);
  }
  TunedServer again({"--devices=cpu", Cache()});
  EXPECT_EQ(again.Runs("gelu", 1024), served);
  EXPECT_EQ(again.Choices(family, "tuned"), 1);
  const v1::KernelInfo listed = again.Listed("gelu", true);
  ASSERT_EQ(listed.tuned_size(), 1);
  EXPECT_EQ(listed.tuned(0).problem(), "float32[1024]");
  EXPECT_EQ(listed.tuned(0).implementation(), family);
  EXPECT_THAT(listed.tuned(0).chosen_because(),
              StartsWith(absl::StrCat("tuned: ", family, ":", served)));
  EXPECT_EQ(again.Listed("gelu", false).tuned_size(), 0);
}

// "wrong" flips a bit; the order would take "illegal_instruction", which ends the process.
TEST_F(TuneTest, ARowThatIsWrongIsNeverServedForItsClass) {
  TunedServer server({"--devices=cpu", "--self_test=off", "--test_fault_injection", Cache()});
  EXPECT_EQ(server.Runs("broken", 64, "manual"), "wrong");
  const TuneReply reply = server.Tune(BenchmarkOf("broken", {{64}}), {"wrong", "plain_copy"});
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  for (const v1::BenchmarkResult& result : reply.response.results())
    EXPECT_EQ(result.max_error() > 1, result.launch().variant() == "wrong");
  EXPECT_EQ(server.Runs("broken", 64), "plain_copy");
  for (const char* name : {"manual", "wrong"})
    EXPECT_THAT(server.Runs("broken", 64, name),
                HasSubstr("wrong: its result for problems of this class was measured to be "));
  EXPECT_EQ(server.Runs("broken", 4096, "manual"), "wrong");
  // A tuning that leaves it out forgets nothing.
  EXPECT_TRUE(server.Tune(BenchmarkOf("broken", {{64}}), {"plain_copy"}).status.ok());
  EXPECT_THAT(server.Runs("broken", 64, "wrong"), HasSubstr("its result"));
  EXPECT_EQ(server.process().Stop(), 0);
  TunedServer again({"--devices=cpu", "--self_test=off", "--test_fault_injection", Cache()});
  EXPECT_THAT(again.Runs("broken", 64, "wrong"), HasSubstr("its result"));
  EXPECT_EQ(again.Runs("broken", 64), "plain_copy");
}

TEST_F(TuneTest, ADamagedCacheKeepsNothingFromStartingAndIsCounted) {
  std::ofstream(folder_.Path("tuning")) << "warpcall tuning table 1\nclass half";
  TunedServer server({"--devices=cpu", Cache()});
  EXPECT_EQ(server.process().Sum("warpcall_tuning_cache_errors_total", {"operation=\"read\""}), 1);
  EXPECT_TRUE(server.process().Logs("the tuning cache is not used"));
  EXPECT_TRUE(server.Tune(BenchmarkOf("gelu", {{64}}), {"manual"}).status.ok());
  EXPECT_THAT(ReadFile(folder_.Path("tuning")), HasSubstr("gelu float32[64]"));
}

TEST_F(TuneTest, RefusesWhatCannotBeCheckedOrMeasured) {
  TunedServer server(FlagsForHeld());
  const auto message = [&](const v1::BenchmarkRequest& request) {
    const TuneReply reply = server.Tune(request, {});
    return absl::StrCat(reply.status.error_code(), " ", reply.status.error_message());
  };
  EXPECT_EQ(message(BenchmarkOf("held", {{4}})),
            "3 kernel held has no definition that results could be checked by: rows of it are not "
            "tuned");
  EXPECT_EQ(message(BenchmarkOf("gelu", {{4, 0}})),
            "3 the output, float32[4,0], has 0 elements; tuning takes 1");
  EXPECT_THAT(message(BenchmarkOf("glue", {{4}})), StartsWith("5 kernel \"glue\" is unknown"));
  EXPECT_EQ(server.process().Sum("warpcall_inspections_total",
                                 {"method=\"tune\"", "code=\"INVALID_ARGUMENT\""}),
            2);
}

}  // namespace
}  // namespace warpcall::testing
