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

// Answers as if every element of a product were an empty sum.
void AnswerWithZeros(int64_t columns, v1::ExecuteResponse* response) {
  v1::Tensor* output = response->mutable_outputs(0);
  output->set_shape(1, columns);
  output->set_data(std::string(static_cast<size_t>(4 * output->shape(0) * columns), 0));
}

TEST(DigitsTest, FailsWhenTheServerComputesSomethingElse) {
  FakeServer server([](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    const FakeAnswer answer = testing::EchoInputs(request, response);
    while (response->outputs_size() > 1) response->mutable_outputs()->RemoveLast();
    if (request.kernel() == "matmul" || request.kernel() == "linear")
      AnswerWithZeros(request.inputs(1).shape(0), response);
    return answer;
  });
  const auto run = Digits(server);
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("chosen"));
  EXPECT_THAT(run.err, HasSubstr("linear, linear, softmax: accuracy"));
  EXPECT_THAT(run.err, HasSubstr("matmul, fused, matmul, fused: accuracy"));
  EXPECT_THAT(run.err, HasSubstr("is under 95 %"));
  EXPECT_EQ(server.executes(), 7);
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
