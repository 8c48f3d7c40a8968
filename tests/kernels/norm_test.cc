// layernorm and rmsnorm: the problems they take, and rows whose squares float32 cannot hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/norm/norm_range.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

TensorSpec F32(Dims dims) { return {DataType::kFloat32, std::move(dims)}; }

std::string Refusal(const Op& op, const std::vector<TensorSpec>& inputs,
                    const std::vector<NamedAttribute>& attributes = {}) {
  const absl::StatusOr<Problem> problem = MakeProblem(op, inputs, attributes);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument) << problem.status();
  return std::string(problem.status().message());
}

TEST(NormTest, WeightAndBiasHaveAnElementForEachOfTheLastDimension) {
  const auto problem = MakeProblem(LayernormOp(), {F32({2, 3, 5}), F32({5}), F32({5})}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(ToString(problem->outputs[0]), "float32[2,3,5]");
  EXPECT_EQ(LayernormOp().work(*problem).bytes, 4 * (30 + 30 + 5 + 5));
  EXPECT_EQ(Refusal(LayernormOp(), {F32({2, 5}), F32({4}), F32({5})}),
            "input 1 (weight) is float32[4]; for x float32[2,5] it must be float32[5]");
  EXPECT_EQ(Refusal(LayernormOp(), {F32({2, 5}), F32({5}), F32({1, 5})}),
            "input 2 (bias) is float32[1,5]; for x float32[2,5] it must be float32[5]");
  EXPECT_EQ(Refusal(RmsnormOp(), {F32({2, 5}), {DataType::kFloat16, {5}}}),
            "input 1 (weight) is float16[5]; for x float32[2,5] it must be float32[5]");
}

TEST(NormTest, EpsilonIsFiniteAndNotNegative) {
  const std::vector<TensorSpec> inputs = {F32({2, 5}), F32({5})};
  for (const double epsilon : {0.0, 1e-300, 1e300})
    EXPECT_TRUE(MakeProblem(RmsnormOp(), inputs, {{"epsilon", epsilon}}).ok()) << epsilon;
  EXPECT_EQ(Refusal(RmsnormOp(), inputs, {{"epsilon", -1e-9}}),
            "attribute epsilon is -1e-09; it must be finite and 0 or more");
  for (const double epsilon : {std::nan(""), HUGE_VAL})
    EXPECT_NE(Refusal(RmsnormOp(), inputs, {{"epsilon", epsilon}}).find("must be finite"),
              std::string::npos);
}

TEST(NormTest, ARowIsKnownByItsReciprocal) {
  const auto reciprocal = [](double mean_square, double epsilon) {
    return static_cast<float>(1 / std::sqrt(mean_square + epsilon));
  };
  for (const double mean_square : {0.0, 1e-20, 1e-3, 1.0, 1e6, 1e35})
    EXPECT_TRUE(norm::IsReciprocalInRange(reciprocal(mean_square, 1e-5), 1000, 1e-5F))
        << mean_square;
  EXPECT_TRUE(norm::IsReciprocalInRange(reciprocal(1e-17, 0), 1000, 0));
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {0.0F, kInfinity, std::nanf(""), reciprocal(1e36, 1e-5)})
    EXPECT_FALSE(norm::IsReciprocalInRange(wrong, 1000, 1e-5F)) << wrong;
  EXPECT_FALSE(norm::IsReciprocalInRange(reciprocal(1e-30, 0), 1000, 0));  // squares may be lost
  EXPECT_FALSE(norm::IsReciprocalInRange(reciprocal(1, 1e35), 1000, 1e35F));
}

struct Row {
  const char* name;
  std::vector<float> x;
  double epsilon;
};

// Rows that need float64: float32 cannot hold their squares, sums or differences.
std::vector<Row> HardRows() {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kMin = std::numeric_limits<float>::denorm_min();
  return {{"squares overflow", {1e20f, -3e25f, 2e25f, 4e24f}, 1e-5},
          {"sums overflow", {kMax, kMax, kMax, kMax / 2, kMax}, 1e-5},
          {"differences overflow", {kMax, -kMax, -kMax, -kMax}, 1e-5},
          {"all alike", {kMax, kMax}, 1e-5},
          {"one", {kMax}, 1e-5},
          {"squares underflow", {1e-30f, -3e-25f, 2e-25f, 4e-26f}, 1e-60},
          {"subnormal", {kMin, 9 * kMin, -5 * kMin}, 1e-300},
          {"beside a large epsilon", {1e19f, -2e19f, 4e19f}, 1e39},
          {"beside a small epsilon", {1e-25f, -2e-25f}, 1e-22},
          {"zeros", {0, 0, 0}, 1e-300},
          {"within", {1, 2, -3}, 0}};
}

std::vector<double> Expected(const Row& row, bool centered) {
  const auto n = static_cast<double>(row.x.size());
  double mean = 0;
  for (const float x : row.x) mean += centered ? x / n : 0;
  double square = 0;
  for (const float x : row.x) square += (x - mean) * (x - mean) / n;
  std::vector<double> y;
  for (const float x : row.x) y.push_back((x - mean) / std::sqrt(square + row.epsilon));
  return y;
}

void ExpectRow(const Op& op, const Row& row, int64_t copies) {
  const auto n = static_cast<int64_t>(row.x.size());
  const bool centered = op.input_names.size() == 3;
  std::vector<TensorSpec> specs = {F32({copies, n}), F32({n})};
  if (centered) specs.push_back(F32({n}));
  const auto problem = MakeProblem(op, specs, {{"epsilon", row.epsilon}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : specs) {
    const size_t input = inputs.size();
    auto* const values = static_cast<float*>(inputs.emplace_back(spec.bytes()).data());
    for (int64_t i = 0; i < spec.elements(); ++i)
      values[i] = input == 0 ? row.x[static_cast<size_t>(i % n)] : (input == 1 ? 1.0f : 0.0f);
  }
  const std::vector<double> expected = Expected(row, centered);
  const auto kernel = testing::CpuKernels().Find(op.name);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  for (const int id : (*kernel)->rows) {
    const Implementation& menu_row = testing::CpuKernels().rows()[id].implementation;
    if (!menu_row.supports(*problem, testing::TestDeviceProperties()).ok()) continue;
    SCOPED_TRACE(absl::StrCat(op.name, " ", menu_row.name, ": ", row.name));
    const auto outputs = testing::RunRow(menu_row, *problem, inputs, 0xFF);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto* const y = static_cast<const float*>((*outputs)[0].data());
    for (int64_t i = 0; i < copies * n; ++i)
      EXPECT_NEAR(y[i], expected[static_cast<size_t>(i % n)],
                  1e-6 * (1 + std::fabs(expected[static_cast<size_t>(i % n)])))
          << i;
  }
}

TEST(NormTest, FiniteRowsGiveFiniteResultsWhateverTheirSquaresAre) {
  for (const Row& row : HardRows())
    for (const int64_t copies : {1, 3}) {
      ExpectRow(RmsnormOp(), row, copies);
      ExpectRow(LayernormOp(), row, copies);
    }
}

// Their mean is the value itself: one unit beside it would be as far off as the deviation says.
TEST(NormTest, RowsOfOneValueAreTheBias) {
  const Kernel& kernel = **testing::CpuKernels().Find("layernorm");
  for (const int64_t n : {3, 17, 768, 1000, 4097, 70001}) {
    const std::vector<TensorSpec> specs = {F32({2, n}), F32({n}), F32({n})};
    const Problem problem = *MakeProblem(LayernormOp(), specs, {});
    for (const float value : {12345.678f, -1000000.1f, 100.7f, 3.3e29f, 3e38f}) {
      std::vector<Memory> inputs;
      for (const float filled : {value, 1.0f, 0.5f}) {
        const TensorSpec& spec = specs[inputs.size()];
        auto* const to = static_cast<float*>(inputs.emplace_back(spec.bytes()).data());
        std::fill(to, to + spec.elements(), filled);
      }
      for (const char* const name :
           {"simd_rows", "onednn_layer_normalization", "chain_of_loops", "float64"}) {
        const auto row =
            testing::CpuKernels().Select(kernel, name, problem, testing::TestDeviceProperties());
        ASSERT_TRUE(row.ok()) << row.status();
        const auto outputs = testing::RunRow((*row)->implementation, problem, inputs, 0xFF);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        const auto* const y = static_cast<const float*>((*outputs)[0].data());
        EXPECT_EQ(std::count(y, y + 2 * n, 0.5f), 2 * n) << name << ", " << n << " of " << value;
      }
    }
  }
}

TEST(NormTest, AScaleIsAPowerOfTwoThatLeavesTheLargestNearOne) {
  for (float largest = 0x1p-149f; largest < 0x1p127f; largest *= 1.7f) {
    const norm::Scale scale = norm::ScaleFor(largest, 1e-300);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale.factor, &exponent), 0.5f) << largest;
    EXPECT_LT(largest * scale.factor, 4) << largest;
    EXPECT_GE(largest * scale.factor, 0x1p-24f) << largest;
    EXPECT_GT(scale.epsilon, 0);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(norm::ScaleFor(infinity, 1e-5).factor, 1);
  EXPECT_EQ(norm::ScaleFor(0, 0).factor, 1);
  EXPECT_EQ(norm::ScaleFor(0, 0).epsilon, 0);
  EXPECT_GT(norm::ScaleFor(0, 1e-300).epsilon, 0);
}

}  // namespace
}  // namespace warpcall
