// Sums of terms that are alike: the rounding errors of a float32 chain then have one sign and add
// up, where those of random data, which other tests use, are as good as independent and cancel. For
// our own rows on the CPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/rows.h"

namespace warpcall::testing {
namespace {

void Fill(const Memory& memory, const TensorSpec& spec, float value) {
  for (int64_t i = 0; i < spec.elements(); ++i) SetValue(memory.data(), spec.data_type, i, value);
}

// Rows of that name meet the op's bounds, on each instruction set.
void ExpectWithinBounds(const Op& op, const Problem& problem, const std::vector<Memory>& inputs,
                        absl::string_view row) {
  if (!IsSmallEnough(problem)) return;
  const Truth truth = TruthFor(op, problem, inputs);
  for (const TestedRow& tested : TestedRows(op)) {
    if (row != tested.row->name || !Supports(tested, problem).ok()) continue;
    SCOPED_TRACE(absl::StrCat(tested.name, " on ", ToString(problem.inputs[0])));
    const auto outputs = RunTested(tested, problem, inputs, 0xFF);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const Disagreement found = Compare(truth, (*outputs)[0].data(), {});
    EXPECT_EQ(found.wrong, 0) << found.text;
  }
}

void ExpectProductsWithinBounds(const Op& op, const std::vector<TensorSpec>& specs,
                                absl::string_view row) {
  const auto problem = *MakeProblem(op, specs, {});
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem.inputs) {
    inputs.emplace_back(spec.bytes());
    Fill(inputs.back(), spec, 0.1f);
  }
  ExpectWithinBounds(op, problem, inputs, row);
}

TEST(AlikeTermsTest, ProductsOfFewRows) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
    for (const int64_t m : {1, 8, 24})
      ExpectProductsWithinBounds(MatmulOp(), {{type, {m, 65536}}, {type, {65536, 32}}},
                                 "simd_tiled");
    ExpectProductsWithinBounds(MatmulOp(), {{type, {2, 65536}}, {type, {65536, 3}}},
                               "one_dot_per_output");
    ExpectProductsWithinBounds(LinearOp(), {{type, {2, 65536}}, {type, {3, 65536}}, {type, {3}}},
                               "chain_of_loops");
  }
}

TEST(AlikeTermsTest, LongRows) {
  for (const int64_t n : {256, 512, 1024, 4096, 8192, 16384, 131072, 1048576}) {
    const Problem problem = *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {1, n}}}, {});
    std::vector<Memory> inputs;
    inputs.emplace_back(problem.inputs[0].bytes());
    Fill(inputs[0], problem.inputs[0], -0.3f);
    SetValue(inputs[0].data(), DataType::kFloat32, n / 3, 0);
    for (const char* const row : {"simd_rows", "chain_of_loops"})
      ExpectWithinBounds(SoftmaxOp(), problem, inputs, row);
  }
}

}  // namespace
}  // namespace warpcall::testing
