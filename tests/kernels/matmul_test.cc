#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace warpcall::matmul {
namespace {

TensorSpec Spec(DataType type, Dims dims) { return {.data_type = type, .dims = std::move(dims)}; }

absl::StatusOr<Problem> Make(Dims a, Dims b, std::vector<NamedAttribute> attributes = {},
                             DataType type = DataType::kFloat32) {
  return MakeProblem(MatmulOp(), {Spec(type, std::move(a)), Spec(type, std::move(b))}, attributes);
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
      MakeProblem(MatmulOp(), {Spec(DataType::kFloat32, {2, 3}), Spec(DataType::kFloat16, {3, 2})},
                  {}),
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
