#include "kernels/gelu/gelu.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

Problem GeluProblem(DataType type, int64_t elements, const char* approximate) {
  const NamedAttribute attribute{"approximate", std::string(approximate)};
  absl::StatusOr<Problem> problem = MakeProblem(GeluOp(), {{type, {elements}}}, {attribute});
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

TEST(GeluTest, KnownValues) {
  std::vector<Memory> inputs;
  inputs.emplace_back(2 * sizeof(float));
  testing::SetValue(inputs[0].data(), DataType::kFloat32, 0, 1.0f);
  testing::SetValue(inputs[0].data(), DataType::kFloat32, 1, -2.0f);
  // To nine digits, as torch.nn.functional.gelu gives them in float64.
  const double expected[2][2] = {{0.841191991, -0.0454023059}, {0.841344746, -0.0455002639}};
  for (int form = 0; form < 2; ++form) {
    const Problem problem = GeluProblem(DataType::kFloat32, 2, form == 0 ? "tanh" : "none");
    for (const Implementation& row : GeluCpuRows()) {
      const auto outputs = RunRow(row, problem, inputs, 0xFF);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(testing::ValueAt((*outputs)[0].data(), DataType::kFloat32, i),
                    expected[form][i], 2e-7)
            << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace warpcall
