// Each op's own rules: the problems that it takes, its views of them, and its work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/identity/identity.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm_range.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/refusal.h"
#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::kInfinity;
using testing::Memory;
using testing::Refusal;

TEST(IdentityTest, WorkIsOneReadAndOneWrite) {
  const auto problem = MakeProblem(IdentityOp(), {{DataType::kFloat16, {3, 5}}}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(IdentityOp().work(*problem).bytes, 60);
  EXPECT_EQ(IdentityOp().work(*problem).flops, 0);
}

std::string AxisRefusal(Dims dims, int64_t axis) {
  return Refusal(SoftmaxOp(), {{DataType::kFloat32, dims}}, {{"axis", axis}});
}

TEST(SoftmaxTest, AxisOutOfRangeIsNamedWithItsLimits) {
  EXPECT_EQ(AxisRefusal({2, 3}, 2), "attribute axis is 2; for rank 2 it must be -2 to 1");
  EXPECT_EQ(AxisRefusal({2, 3}, -3), "attribute axis is -3; for rank 2 it must be -2 to 1");
  EXPECT_EQ(AxisRefusal({5}, 1), "attribute axis is 1; for rank 1 it must be -1 to 0");
}

TEST(SoftmaxTest, ViewCountsWhatLiesAroundTheAxis) {
  const auto problem =
      MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {2, 3, 5, 7}}}, {{"axis", int64_t{-2}}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  const softmax::View view = softmax::ViewOf(*problem);
  EXPECT_EQ(view.outer, 6);
  EXPECT_EQ(view.n, 5);
  EXPECT_EQ(view.inner, 7);
  EXPECT_EQ(view.RowOffset(8), 36);  // row 1 of slab 1
}

TensorSpec F32(Dims dims) { return {DataType::kFloat32, std::move(dims)}; }

std::string LinearRefusal(const std::vector<TensorSpec>& inputs,
                          const std::vector<NamedAttribute>& attributes = {}) {
  return Refusal(LinearOp(), inputs, attributes);
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
  EXPECT_EQ(LinearRefusal({F32({2, 5}), F32({7, 4}), F32({7})}),
            "input 1 (weight) is float32[7,4]; for x float32[2,5] it must be [n,5]");
  EXPECT_EQ(LinearRefusal({F32({2, 5}), F32({5}), F32({1})}),
            "input 1 (weight) is float32[5]; for x float32[2,5] it must be [n,5]");
  EXPECT_EQ(LinearRefusal({F32({2, 5}), F32({7, 5}), F32({5})}),
            "input 2 (bias) is float32[5]; for weight float32[7,5] it must be [7]");
  EXPECT_EQ(LinearRefusal({F32({2, 5}), F32({7, 5}), {DataType::kFloat16, {7}}}),
            "linear takes inputs of one data type, got x float32, bias float16");
  const TensorSpec half{DataType::kFloat16, {3, 3}};
  EXPECT_EQ(
      LinearRefusal({half, half, {DataType::kFloat16, {3}}}, {{"precision", std::string("tf32")}}),
      "attribute precision=\"tf32\" takes float32 inputs, got float16");
  EXPECT_NE(
      LinearRefusal({F32({2, 5}), F32({7, 5}), F32({7})}, {{"activation", std::string("tanh")}})
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

namespace warpcall::matmul {
namespace {

absl::StatusOr<Problem> Make(Dims a, Dims b, std::vector<NamedAttribute> attributes = {},
                             DataType type = DataType::kFloat32) {
  return MakeProblem(MatmulOp(), {{type, std::move(a)}, {type, std::move(b)}}, attributes);
}

void ExpectRefused(const absl::StatusOr<Problem>& problem, absl::string_view message) {
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument) << problem.status();
  EXPECT_NE(problem.status().message().find(std::string(message)), absl::string_view::npos)
      << problem.status();
}

TEST(MatmulShapeTest, OutputHasBroadcastBatchesAndBothOuterSizes) {
  const NamedAttribute ta{"transpose_a", true};
  const NamedAttribute tb{"transpose_b", true};
  EXPECT_EQ(Make({2, 3}, {3, 4})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({3, 2}, {3, 4}, {ta})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({2, 3}, {4, 3}, {tb})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({3, 2}, {4, 3}, {ta, tb})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({5, 1, 2, 3}, {6, 3, 4})->outputs[0].dims, Dims({5, 6, 2, 4}));
  EXPECT_EQ(Make({2, 3}, {1, 1, 1, 1, 1, 7, 3, 4})->outputs[0].dims,
            Dims({1, 1, 1, 1, 1, 7, 2, 4}));
  EXPECT_EQ(Make({0, 2, 3}, {1, 3, 4})->outputs[0].dims, Dims({0, 2, 4}));
  EXPECT_EQ(Make({2, 0}, {0, 4})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({2, 3}, {3, 4}, {}, DataType::kBFloat16)->outputs[0].data_type,
            DataType::kBFloat16);
}

TEST(MatmulShapeTest, RefusalsNameValuesAndLimits) {
  ExpectRefused(Make({2, 3}, {4, 5}),
                "inner dimensions differ: k is 3 in a float32[2,3] and 4 in b float32[4,5]");
  ExpectRefused(Make({2, 3}, {3, 5}, {{"transpose_a", true}}),
                "k is 2 in a float32[2,3] (transposed) and 3 in b float32[3,5]");
  ExpectRefused(Make({3}, {3, 5}), "input 0 (a) has rank 1; ranks 2 to 8 are allowed");
  ExpectRefused(Make({2, 3}, {3}), "input 1 (b) has rank 1; ranks 2 to 8 are allowed");
  ExpectRefused(Make({2, 4, 5}, {3, 5, 6}), "has 2 where b float32[3,5,6] has 3");
  ExpectRefused(Make({0, 4, 5}, {3, 5, 6}), "has 0 where b float32[3,5,6] has 3");
  ExpectRefused(Make({2, 3}, {3, 4}, {{"precision", std::string("tf32")}}, DataType::kFloat16),
                "precision=\"tf32\" takes float32 inputs, got float16");
  ExpectRefused(Make({2, 3}, {3, 4}, {{"precision", std::string("fp8")}}), "fp8");
  ExpectRefused(
      MakeProblem(MatmulOp(), {{DataType::kFloat32, {2, 3}}, {DataType::kFloat16, {3, 2}}}, {}),
      "one data type, got a float32, b float16");
}

TEST(MatmulShapeTest, OutputThatOverflowsIsRefused) {
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ(Make({large, 1}, {1, large}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MatmulShapeTest, Tf32IsForFloat32) {
  EXPECT_TRUE(Make({2, 3}, {3, 4}, {{"precision", std::string("tf32")}}).ok());
}

TEST(MatmulWorkTest, CountsTwoOperationsPerTermAndEachTensorOnce) {
  const Work work = MatmulOp().work(*Make({5, 2, 3}, {3, 4}, {}, DataType::kFloat16));
  EXPECT_EQ(work.flops, 2 * 5 * 2 * 3 * 4);
  EXPECT_EQ(work.bytes, 2 * (5 * 2 * 3 + 3 * 4 + 5 * 2 * 4));
}

TEST(MatmulWorkTest, SaturatesInsteadOfOverflowing) {
  const int64_t large = int64_t{1} << 30;
  const Work work = MatmulOp().work(*Make({large, large}, {large, large}));
  EXPECT_EQ(work.flops, std::numeric_limits<int64_t>::max());
  EXPECT_GT(work.bytes, int64_t{1} << 62);
}

TEST(MatmulDecodeTest, BatchesThatShareOneBBecomeRows) {
  const Shape shape = DecodeShape(*Make({7, 5, 2, 3}, {3, 4}));
  EXPECT_EQ(shape.m, 7 * 5 * 2);
  EXPECT_EQ(shape.batches(), 1);
}

TEST(MatmulDecodeTest, NeighbouringBatchDimensionsMerge) {
  const Shape shape = DecodeShape(*Make({7, 5, 2, 3}, {7, 5, 3, 4}));
  EXPECT_EQ(shape.m, 2);
  ASSERT_EQ(shape.batch.size(), 1u);
  EXPECT_EQ(shape.batch[0].size, 35);
}

TEST(MatmulDecodeTest, OffsetsFollowBroadcasting) {
  const Shape shape = DecodeShape(*Make({2, 1, 3, 2}, {5, 3, 4}, {{"transpose_a", true}}));
  ASSERT_EQ(shape.batches(), 10);
  const Offsets offsets = shape.BatchOffsets(7);  // [1, 2]
  EXPECT_EQ(offsets.a, 1 * 6);
  EXPECT_EQ(offsets.b, 2 * 12);
  EXPECT_EQ(offsets.c, 7 * 8);
}

}  // namespace
}  // namespace warpcall::matmul

namespace warpcall {
namespace {

// layernorm and rmsnorm: the problems they take, and rows whose squares float32 cannot hold.

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
  for (const float wrong : {0.0F, kInfinity, std::nanf(""), reciprocal(1e36, 1e-5)})
    EXPECT_FALSE(norm::IsReciprocalInRange(wrong, 1000, 1e-5F)) << wrong;
  EXPECT_FALSE(norm::IsReciprocalInRange(reciprocal(1e-30, 0), 1000, 0));  // squares may be lost
  EXPECT_FALSE(norm::IsReciprocalInRange(reciprocal(1, 1e35), 1000, 1e35F));
}

struct NormRow {
  const char* name;
  std::vector<float> x;
  double epsilon;
};

// Rows that need float64: float32 cannot hold their squares, sums or differences.
std::vector<NormRow> HardRows() {
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

std::vector<double> Expected(const NormRow& row, bool centered) {
  const auto n = static_cast<double>(row.x.size());
  double mean = 0;
  for (const float x : row.x) mean += centered ? x / n : 0;
  double square = 0;
  for (const float x : row.x) square += (x - mean) * (x - mean) / n;
  std::vector<double> y;
  for (const float x : row.x) y.push_back((x - mean) / std::sqrt(square + row.epsilon));
  return y;
}

void ExpectRow(const Op& op, const NormRow& row, int64_t copies) {
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
  for (const NormRow& row : HardRows())
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
