#include "kernels/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/dispatch.h"
#include "tests/kernels/refusal.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;
using testing::Refusal;

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

TensorSpec Spec(Dims dims, DataType type = DataType::kFloat32) { return {type, std::move(dims)}; }

TEST(TensorSpecTest, CountsElementsAndBytes) {
  EXPECT_EQ(Spec({2, 3}).elements(), 6);
  EXPECT_EQ(Spec({2, 3}).bytes(), 24u);
  EXPECT_EQ(Spec({2, 3}, DataType::kBFloat16).bytes(), 12u);
  EXPECT_EQ(Spec({2, 0, 3}).elements(), 0);
}

TEST(TensorSpecTest, PrintsTypeAndDimensions) {
  EXPECT_EQ(ToString(Spec({2, 3}, DataType::kFloat16)), "float16[2,3]");
}

TEST(CheckTensorSpecTest, TakesTheLimitsThemselves) {
  EXPECT_TRUE(CheckTensorSpec(Spec({kInt64Max / 4}), "x").ok());
  EXPECT_TRUE(CheckTensorSpec(Spec({kInt64Max / 2}, DataType::kFloat16), "x").ok());
  EXPECT_TRUE(CheckTensorSpec(Spec({0, kInt64Max / 4, 0}), "x").ok());
  EXPECT_TRUE(CheckTensorSpec(Spec({1, 1, 1, 1, 1, 1, 1, 1}), "x").ok());
}

TEST(CheckTensorSpecTest, RefusesWhatOverflowsEvenBesideZero) {
  for (const Dims& dims : {Dims{kInt64Max / 4 + 1}, Dims{0, kInt64Max / 4 + 1},
                           Dims{kInt64Max, 0, kInt64Max}, Dims{1 << 30, 1 << 30, 4}}) {
    const absl::Status status = CheckTensorSpec(Spec(dims), "x");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("9223372036854775807"));
  }
}

TEST(CheckTensorSpecTest, RefusesUnknownDataType) {
  const absl::Status status = CheckTensorSpec(Spec({1}, static_cast<DataType>(7)), "x");
  EXPECT_EQ(status.message(), "x: data type 7 is unknown; allowed: float32, float16, bfloat16");
}

TEST(MakeProblemTest, NamesTheBadDimension) {
  EXPECT_EQ(Refusal(GeluOp(), {Spec({2, -3})}),
            "input 0 (x): dimension 1 is -3; dimensions must be 0 or more");
}

TEST(MakeProblemTest, NamesTheBadRank) {
  EXPECT_EQ(Refusal(GeluOp(), {TensorSpec()}), "input 0 (x): rank is 0; rank must be 1 to 8");
  EXPECT_EQ(Refusal(GeluOp(), {Spec({1, 1, 1, 1, 1, 1, 1, 1, 1})}),
            "input 0 (x): rank is 9; rank must be 1 to 8");
}

TEST(MakeProblemTest, NamesTheNumberOfInputs) {
  EXPECT_EQ(Refusal(GeluOp(), {Spec({1}), Spec({1})}), "gelu takes 1 input (x), got 2");
  EXPECT_EQ(Refusal(GeluOp(), {}), "gelu takes 1 input (x), got 0");
}

TEST(MakeProblemTest, NamesUnknownAttributes) {
  EXPECT_EQ(Refusal(GeluOp(), {Spec({1})}, {{"aproximate", std::string("tanh")}}),
            "attribute \"aproximate\" is unknown; gelu has: approximate");
  EXPECT_EQ(Refusal(IdentityOp(), {Spec({1})}, {{"axis", int64_t{0}}}),
            "attribute \"axis\" is unknown; identity has: none");
}

TEST(MakeProblemTest, NamesAttributeValuesAndTypes) {
  EXPECT_EQ(Refusal(GeluOp(), {Spec({1})}, {{"approximate", std::string("foo")}}),
            "attribute approximate=\"foo\" is not allowed; allowed: tanh, none");
  EXPECT_EQ(Refusal(SoftmaxOp(), {Spec({1})}, {{"axis", std::string("0")}}),
            "attribute axis must be an int, got a string");
  EXPECT_EQ(Refusal(SoftmaxOp(), {Spec({1})}, {{"axis", true}}),
            "attribute axis must be an int, got a bool");
  EXPECT_EQ(Refusal(SoftmaxOp(), {Spec({1})}, {{"axis", 0.0}}),
            "attribute axis must be an int, got a double");
}

TEST(MakeProblemTest, RefusesAttributesGivenTwice) {
  EXPECT_EQ(Refusal(SoftmaxOp(), {Spec({1})}, {{"axis", int64_t{0}}, {"axis", int64_t{0}}}),
            "attribute \"axis\" is given more than once");
}

TEST(MakeProblemTest, FillsDefaultsAndOutputs) {
  const absl::StatusOr<Problem> problem =
      MakeProblem(GeluOp(), {Spec({2, 3}, DataType::kBFloat16)}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(std::get<std::string>(problem->attributes[gelu::kApproximate]), "tanh");
  ASSERT_EQ(problem->outputs.size(), 1u);
  EXPECT_EQ(ToString(problem->outputs[0]), "bfloat16[2,3]");
}

// An op that takes one to three inputs, as its attribute says, which must be given.
TEST(MakeProblemTest, AttributesSayHowManyInputsAnOpTakes) {
  static const Op variable = {.name = "variable",
                              .summary = "",
                              .input_names = {"a", "b", "c"},
                              .attributes = {{.name = "count",
                                              .summary = "of inputs",
                                              .default_value = int64_t{0},
                                              .allowed_values = {},
                                              .required = true}},
                              .infer_outputs =
                                  [](Problem* problem) {
                                    if (std::get<int64_t>(problem->attributes[0]) !=
                                        static_cast<int64_t>(problem->inputs.size()))
                                      return absl::InvalidArgumentError("another number");
                                    problem->outputs.push_back(problem->inputs.back());
                                    return absl::OkStatus();
                                  },
                              .work = nullptr,
                              .inputs_min = 1};
  const auto count = [](int64_t n) { return std::vector<NamedAttribute>{{"count", n}}; };
  const std::vector<TensorSpec> inputs = {Spec({1}), Spec({2}), Spec({3}), Spec({4})};
  for (const size_t n : {1, 2, 3})
    EXPECT_TRUE(
        MakeProblem(variable, absl::MakeConstSpan(inputs.data(), n), count(static_cast<int64_t>(n)))
            .ok());
  EXPECT_EQ(Refusal(variable, {}, count(0)), "variable takes 1 to 3 inputs (a, b, c), got 0");
  EXPECT_EQ(Refusal(variable, inputs, count(4)), "variable takes 1 to 3 inputs (a, b, c), got 4");
  EXPECT_EQ(Refusal(variable, {Spec({1})}, count(2)), "another number");
  EXPECT_EQ(Refusal(variable, {Spec({1})}),
            "attribute count is required and was not given: of inputs");
  EXPECT_THAT(Refusal(variable, {Spec({1}), Spec({-1})}, count(2)), HasSubstr("input 1 (b): "));
}

TEST(MakeProblemTest, ChecksOutputsToo) {
  static const Op grow = {.name = "grow",
                          .summary = "",
                          .input_names = {"x"},
                          .attributes = {},
                          .infer_outputs =
                              [](Problem* problem) {
                                problem->outputs.push_back(problem->inputs[0]);
                                problem->outputs[0].dims[0] *= int64_t{1} << 32;
                                return absl::OkStatus();
                              },
                          .work = nullptr};
  EXPECT_THAT(Refusal(grow, {Spec({1, int64_t{1} << 30})}),
              HasSubstr("output 0: float32[4294967296,1073741824] overflows"));
}

TEST(WorkTest, SaturatesInsteadOfWrapping) {
  const absl::StatusOr<Problem> problem = MakeProblem(GeluOp(), {Spec({kInt64Max / 4})}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(GeluOp().work(*problem).bytes, kInt64Max);
  EXPECT_EQ(GeluOp().work(*problem).flops, kInt64Max);
}

TEST(FamilyNameTest, MatchesThePublicNames) {
  EXPECT_STREQ(FamilyName(Family::kReference), "reference");
  EXPECT_STREQ(FamilyName(Family::kCpu), "cpu");
  EXPECT_STREQ(FamilyName(Family::kManual), "manual");
  EXPECT_STREQ(FamilyName(Family::kCuda), "cuda");
  EXPECT_STREQ(FamilyName(Family::kTriton), "triton");
  EXPECT_STREQ(FamilyName(Family::kCompiled), "compiled");
  EXPECT_STREQ(FamilyName(Family::kLibrary), "library");
}

// A data type that the compiler cannot check ends the process instead of being guessed.
TEST(DataTypeDeathTest, ATypeThatThereIsNotEndsTheProcess) {
  const auto unknown = static_cast<DataType>(9);
  EXPECT_DEATH(ElementBytes(unknown), "data type 9 is unknown");
  EXPECT_DEATH(DispatchDataType(unknown, [](auto value) { return sizeof(value); }),
               "data type 9 is unknown");
  EXPECT_EQ(DispatchDataType(DataType::kBFloat16, [](auto value) { return sizeof(value); }), 2u);
}

}  // namespace
}  // namespace warpcall
