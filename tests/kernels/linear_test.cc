#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

TensorSpec F32(Dims dims) { return {DataType::kFloat32, std::move(dims)}; }

std::string Refusal(const std::vector<TensorSpec>& inputs,
                    const std::vector<NamedAttribute>& attributes = {}) {
  const absl::StatusOr<Problem> problem = MakeProblem(LinearOp(), inputs, attributes);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument) << problem.status();
  return std::string(problem.status().message());
}

TEST(LinearTest, TheOutputHasAColumnForEachRowOfTheWeight) {
  const auto problem = MakeProblem(LinearOp(), {F32({2, 3, 5}), F32({7, 5}), F32({7})}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(ToString(problem->outputs[0]), "float32[2,3,7]");
  EXPECT_EQ(LinearOp().work(*problem).bytes, 4 * (30 + 35 + 7 + 42));
  EXPECT_EQ(PartsOf(LinearOp(), *problem), 6);
  const Problem part = TakeParts(LinearOp(), *problem, 4);
  EXPECT_EQ(ToString(part.inputs[0]), "float32[4,5]");
  EXPECT_EQ(ToString(part.inputs[1]), "float32[7,5]");
  EXPECT_EQ(ToString(part.outputs[0]), "float32[4,7]");
}

TEST(LinearTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Refusal({F32({2, 5}), F32({7, 4}), F32({7})}),
            "input 1 (weight) is float32[7,4]; for x float32[2,5] it must be [n,5]");
  EXPECT_EQ(Refusal({F32({2, 5}), F32({5}), F32({1})}),
            "input 1 (weight) is float32[5]; for x float32[2,5] it must be [n,5]");
  EXPECT_EQ(Refusal({F32({2, 5}), F32({7, 5}), F32({5})}),
            "input 2 (bias) is float32[5]; for weight float32[7,5] it must be [7]");
  EXPECT_EQ(Refusal({F32({2, 5}), F32({7, 5}), {DataType::kFloat16, {7}}}),
            "linear takes inputs of one data type, got x float32, bias float16");
  const TensorSpec half{DataType::kFloat16, {3, 3}};
  EXPECT_EQ(Refusal({half, half, {DataType::kFloat16, {3}}}, {{"precision", std::string("tf32")}}),
            "attribute precision=\"tf32\" takes float32 inputs, got float16");
  EXPECT_NE(Refusal({F32({2, 5}), F32({7, 5}), F32({7})}, {{"activation", std::string("tanh")}})
                .find("allowed: none, relu, gelu, gelu_erf"),
            std::string::npos);
}

// 2048 + 1 + 1 in float16, 256 + 1 + 1 in bfloat16: rounded before the bias came, they would lose
// both ones.
TEST(LinearTest, TheSumIsRoundedOnceAfterTheBias) {
  const auto kernel = testing::CpuKernels().Find("linear");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    const float large = type == DataType::kFloat16 ? 2048 : 256;
    const auto problem = MakeProblem(LinearOp(), {{type, {3, 2}}, {type, {5, 2}}, {type, {5}}}, {});
    ASSERT_TRUE(problem.ok()) << problem.status();
    std::vector<Memory> inputs;
    for (const TensorSpec& spec : problem->inputs) inputs.emplace_back(spec.bytes());
    for (size_t input = 0; input < inputs.size(); ++input)
      for (int64_t i = 0; i < problem->inputs[input].elements(); ++i)
        testing::SetValue(inputs[input].data(), type, i, input == 0 && i % 2 == 0 ? large : 1);
    int rows = 0;
    for (const int id : (*kernel)->rows) {
      const Implementation& row = testing::CpuKernels().rows()[id].implementation;
      if (!absl::c_linear_search(row.data_types, type)) continue;
      if (!row.supports(*problem, testing::TestDeviceProperties()).ok()) continue;
      const auto outputs = testing::RunRow(row, *problem, inputs, 0xFF);
      ASSERT_TRUE(outputs.ok()) << row.name << ": " << outputs.status();
      for (int64_t i = 0; i < 15; ++i)
        EXPECT_EQ(testing::ValueAt((*outputs)[0].data(), type, i), large + 2)
            << row.name << " " << i;
      ++rows;
    }
    EXPECT_GE(rows, 3);
  }
}

}  // namespace
}  // namespace warpcall
