// The digits example against servers that compute nothing right; against the real one it is
// RealClientTest.DigitsAreReadAsWellAsByNumPy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/fake_server.h"
#include "tests/programs.h"

namespace warpcall {
namespace {

using testing::FakeAnswer;
using testing::FakeServer;
using ::testing::HasSubstr;

testing::ProgramResult Digits(const FakeServer& server) {
  return testing::RunProgram(absl::StrCat("'", testing::ProgramPath("digits"), "' --server ",
                                          server.address(), " --data '", DIGITS_DATA, "'"));
}

TEST(DigitsTest, FailsWhenTheServerComputesSomethingElse) {
  FakeServer server([](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    const FakeAnswer answer = testing::EchoInputs(request, response);
    if (request.kernel() != "matmul") return answer;
    // As if every element were an empty sum.
    v1::Tensor* output = response->mutable_outputs(0);
    output->set_shape(1, request.inputs(1).shape(1));
    output->set_data(std::string(static_cast<size_t>(4 * output->shape(0) * output->shape(1)), 0));
    response->mutable_outputs()->RemoveLast();
    return answer;
  });
  const auto run = Digits(server);
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("chosen"));
  EXPECT_THAT(run.err, HasSubstr("is under 95 %"));
  EXPECT_EQ(server.executes(), 4);
}

TEST(DigitsTest, FailsWhenTheServerRefuses) {
  FakeServer server([](const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    return {absl::InternalError("a defect"), std::nullopt};
  });
  const auto run = Digits(server);
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("layer 1: a defect"));
}

}  // namespace
}  // namespace warpcall
