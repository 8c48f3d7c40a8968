// A server that serves while it still tries rows: its rows meanwhile, and when it offers more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/specs_request.h"
#include "warpcall/client.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNotTried[] = "not tried yet: the server tries it while it serves";

class LateRowsTest : public ::testing::Test {
 protected:
  // A row that waits has six times as long as one that is at work.
  LateRowsTest()
      : server_((setenv("WARPCALL_TEST_LATE_GATE", gate_.path().c_str(), 1),
                 std::vector<std::string>{"--self_test=quick", "--test_fault_injection",
                                          "--self_test_row_seconds=5"})) {}

  ~LateRowsTest() override { unsetenv("WARPCALL_TEST_LATE_GATE"); }

  // Reason why the row is not offered, from the summary of its family's variants.
  std::string WhyNotLate() {
    grpc::ClientContext context;
    v1::ListKernelsResponse kernels;
    EXPECT_TRUE(stub_->ListKernels(&context, {}, &kernels).ok());
    for (const v1::KernelInfo& kernel : kernels.kernels())
      for (const v1::ImplementationInfo& row : kernel.implementations())
        if (kernel.name() == "broken" && row.name() == "library") {
          const std::string start = "late: for tests only (unavailable: ";
          const size_t begin = row.summary().find(start);
          if (begin == std::string::npos) return "";
          const size_t reason = begin + start.size();
          return row.summary().substr(reason, row.summary().find(')', reason) - reason);
        }
    return "there is no such row";
  }

  Reply Run(const std::string& implementation) {
    v1::ExecuteRequest request = Request("broken", {FloatTensor(16)});
    request.set_implementation(implementation);
    return Execute(Connect(server_.address()), request);
  }

  // A Benchmark lists the late row with its reason; a Tune is UNAVAILABLE until it was tried.
  void ExpectInspectionsKnow() {
    v1::BenchmarkResponse response;
    grpc::ClientContext benchmark;
    ASSERT_TRUE(stub_->Benchmark(&benchmark, ShortBenchmark(), &response).ok());
    std::string error;
    for (const v1::BenchmarkResult& result : response.results())
      if (result.launch().variant() == "late") error = result.error();
    EXPECT_EQ(error, kNotTried);
    grpc::ClientContext tune;
    const grpc::Status waits = stub_->Tune(&tune, ShortBenchmark(), &response);
    EXPECT_EQ(waits.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(waits.error_message(), absl::StrCat("library:late: ", kNotTried));
    EXPECT_EQ(tune.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  }

  // Opens the gate once a client waits for the row.
  void ExpectClientsWait() {
    const auto refused = [&] {
      return server_.Sum("warpcall_requests_total", {"code=\"UNAVAILABLE\""});
    };
    std::thread opens([this, &refused, before = refused()] {
      EXPECT_TRUE(Eventually([&] { return refused() == before + 1; }));
      gate_.Open();
    });
    client::Client client(server_.address());
    const std::vector<float> values = {1.5f, -2.0f};
    const auto result = client.Execute({.kernel = "broken",
                                        .inputs = {client::Tensor::FromFloats({2}, values)},
                                        .options = {.implementation = "late"}});
    opens.join();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->launch.variant, "late");
    EXPECT_EQ(result->attempts, 2);
  }

  static v1::BenchmarkRequest ShortBenchmark() {
    v1::BenchmarkRequest request = BenchmarkOf("broken", {{16}});
    request.set_iterations(1);
    return request;
  }

  Gate gate_;  // closed
  ServerProcess server_;
  const std::unique_ptr<v1::KernelService::Stub> stub_ =
      v1::KernelService::NewStub(Connect(server_.address()));
};

TEST_F(LateRowsTest, AreListedAsNotTriedUntilTheyArePassed) {
  EXPECT_EQ(WhyNotLate(), kNotTried);
  EXPECT_EQ(server_.Get("/readyz"),
            std::pair(200, std::string("ok; implementations that are not tried yet: 1\n")));
  EXPECT_EQ(server_.Sum("warpcall_rows_unavailable", {"variant=\"late\""}), 0);
  for (const char* const implementation : {"", "auto", "reference"})
    EXPECT_EQ(Run(implementation).response.launch().variant(), "plain_copy") << implementation;
  for (const char* const implementation : {"late", "library"}) {
    const Reply refused = Run(implementation);
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(refused.status.error_message(), HasSubstr(absl::StrCat("late: ", kNotTried)));
    EXPECT_EQ(refused.pushback_ms, "5000");
  }
  ExpectInspectionsKnow();
  ExpectClientsWait();
  EXPECT_TRUE(Eventually([&] { return WhyNotLate().empty(); }));
  EXPECT_EQ(server_.Get("/readyz"), std::pair(200, std::string("ok\n")));
  for (const char* const implementation : {"", "auto", "late", "library"})
    EXPECT_EQ(Run(implementation).response.launch().variant(), "late") << implementation;
  grpc::ClientContext again;
  v1::BenchmarkResponse response;
  const grpc::Status tuned = stub_->Tune(&again, ShortBenchmark(), &response);
  EXPECT_TRUE(tuned.ok()) << tuned.error_message();
  EXPECT_EQ(server_.Stop(), 0);
  EXPECT_THAT(server_.log(), HasSubstr("msg=\"all rows were tried\""));
}

TEST_F(LateRowsTest, DoNotKeepTheServerFromItsEnd) {
  EXPECT_EQ(WhyNotLate(), kNotTried);
  EXPECT_EQ(server_.Stop(), 0);
  EXPECT_THAT(server_.log(), Not(HasSubstr("all rows were tried")));
}

}  // namespace
}  // namespace warpcall::testing
