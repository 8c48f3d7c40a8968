#include "server/engine/problem_class.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/fused/fused.h"
#include "kernels/gelu/gelu.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"

namespace warpcall {
namespace {

ProblemClass Of(const Op& op, const std::vector<Dims>& shapes,
                const std::vector<NamedAttribute>& attributes = {},
                DataType type = DataType::kFloat32) {
  std::vector<TensorSpec> specs;
  for (const Dims& dims : shapes) specs.push_back({type, dims});
  const auto problem = MakeProblem(op, specs, attributes);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return problem.ok() ? ClassOf(op, *problem) : ProblemClass();
}

TEST(ProblemClassTest, BucketsAreRoundedHalfOctaves) {
  EXPECT_EQ(SizeBucket(0), 0u);
  for (int64_t size = 1; size < 70'000; ++size)
    ASSERT_EQ(SizeBucket(size), std::lround(2 * std::log2(size)) + 1) << size;
  // A power of two, its neighbours, and the borders around the largest.
  for (int power = 17; power < 62; ++power) {
    const int64_t middle = int64_t{1} << power;
    const auto low = static_cast<int64_t>(std::ceil(std::exp2(power - 0.25)));
    EXPECT_EQ(SizeBucket(middle), 2u * power + 1);
    EXPECT_EQ(SizeBucket(low + middle / 1000), SizeBucket(middle)) << power;
    EXPECT_EQ(SizeBucket(low - middle / 1000), SizeBucket(middle) - 1) << power;
  }
}

TEST(ProblemClassTest, SmallSizesAreToldApart) {
  for (int64_t size = 0; size < 4; ++size) EXPECT_LT(SizeBucket(size), SizeBucket(size + 1));
}

TEST(ProblemClassTest, OfElementwiseOpsTheNumberOfElementsCounts) {
  EXPECT_EQ(Of(GeluOp(), {{4096, 1024}}), Of(GeluOp(), {{4'194'304}}));
  EXPECT_NE(Of(GeluOp(), {{4096, 1024}}), Of(GeluOp(), {{4096, 2048}}));
  EXPECT_NE(Of(GeluOp(), {{4096}}), Of(GeluOp(), {{4096}}, {}, DataType::kFloat16));
}

// Inputs as large, an output and work 64 times as large.
TEST(ProblemClassTest, WhatInputsMakeOfEachOtherCounts) {
  EXPECT_NE(Of(MatmulOp(), {{64, 1, 32, 16}, {1, 64, 16, 32}}),
            Of(MatmulOp(), {{64, 32, 16}, {64, 16, 32}}));
  const std::vector<NamedAttribute> sum = {{"expression", std::string("x0 + x1")}};
  EXPECT_NE(Of(FusedOp(), {{64, 1, 512}, {1, 64, 512}}, sum),
            Of(FusedOp(), {{64, 512}, {64, 512}}, sum));
}

TEST(ProblemClassTest, AlignmentCountsUpTo16Bytes) {
  // 4096 float32 are aligned to 16 KiB, 4100 to 16 bytes, 4098 to 8, 4097 to 4: one bucket.
  EXPECT_EQ(Of(GeluOp(), {{4096}}), Of(GeluOp(), {{4100}}));
  EXPECT_NE(Of(GeluOp(), {{4096}}), Of(GeluOp(), {{4098}}));
  EXPECT_NE(Of(GeluOp(), {{4098}}), Of(GeluOp(), {{4097}}));
  // The output's, too: n is no dimension of b's last where b is transposed.
  const std::vector<NamedAttribute> transposed = {{"transpose_b", true}};
  EXPECT_NE(Of(MatmulOp(), {{64, 64}, {4096, 64}}, transposed),
            Of(MatmulOp(), {{64, 64}, {4097, 64}}, transposed));
}

TEST(ProblemClassTest, AnAxisIsToldByTheSizesAroundIt) {
  const auto axis = [](int64_t value) { return std::vector<NamedAttribute>{{"axis", value}}; };
  EXPECT_EQ(Of(SoftmaxOp(), {{32, 128, 1000}}, axis(-1)), Of(SoftmaxOp(), {{4096, 1000}}, axis(1)));
  EXPECT_NE(Of(SoftmaxOp(), {{1024, 1024}}, axis(0)), Of(SoftmaxOp(), {{1024, 1024}}, axis(1)));
}

TEST(ProblemClassTest, OfRowsAndProductsTheDimensionsBeforeAreOne) {
  EXPECT_EQ(Of(RmsnormOp(), {{8, 512, 768}, {768}}), Of(RmsnormOp(), {{4096, 768}, {768}}));
  EXPECT_NE(Of(RmsnormOp(), {{4096, 768}, {768}}), Of(RmsnormOp(), {{768, 4096}, {4096}}));
  EXPECT_EQ(Of(MatmulOp(), {{2, 4, 64, 32}, {2, 4, 32, 16}}),
            Of(MatmulOp(), {{8, 64, 32}, {8, 32, 16}}));
  EXPECT_NE(Of(MatmulOp(), {{8, 64, 32}, {8, 32, 16}}), Of(MatmulOp(), {{8, 64, 32}, {32, 16}}));
}

TEST(ProblemClassTest, OfAttributesNamesAndSwitchesCountAndNumbersDoNot) {
  EXPECT_NE(Of(GeluOp(), {{64}}), Of(GeluOp(), {{64}}, {{"approximate", std::string("none")}}));
  EXPECT_NE(Of(MatmulOp(), {{64, 64}, {64, 64}}),
            Of(MatmulOp(), {{64, 64}, {64, 64}}, {{"transpose_a", true}}));
  EXPECT_EQ(Of(RmsnormOp(), {{64, 64}, {64}}),
            Of(RmsnormOp(), {{64, 64}, {64}}, {{"epsilon", 1.0}}));
  const auto fused = [](const char* expression, int64_t seed) {
    return std::vector<NamedAttribute>{{"expression", std::string(expression)}, {"seed", seed}};
  };
  EXPECT_EQ(Of(FusedOp(), {{64, 64}}, fused("dropout(x0, 0.5)", 1)),
            Of(FusedOp(), {{64, 64}}, fused("dropout(x0, 0.5)", 2)));
  EXPECT_NE(Of(FusedOp(), {{64, 64}}, fused("dropout(x0, 0.5)", 1)),
            Of(FusedOp(), {{64, 64}}, fused("dropout(x0, 0.25)", 1)));
}

}  // namespace
}  // namespace warpcall
