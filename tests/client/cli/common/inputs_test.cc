#include "client/cli/common/inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace warpcall::cli {
namespace {

TEST(RandomTensorTest, NormalHasMeanZeroAndVarianceOne) {
  std::mt19937_64 random(7);
  constexpr int64_t kElements = 100'001;  // odd: the last pair is cut
  const auto tensor =
      RandomTensor({DataType::kFloat32, {kElements}}, Distribution::kNormal, &random);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  double sum = 0, squares = 0, beyond_two = 0;
  const std::vector<float> values = tensor->ToFloats();
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += double{value} * value;
    beyond_two += std::abs(value) > 2;
  }
  // Five standard deviations of each estimate.
  EXPECT_NEAR(sum / kElements, 0, 5 / std::sqrt(kElements));
  EXPECT_NEAR(squares / kElements, 1, 5 * std::sqrt(2.0 / kElements));
  EXPECT_NEAR(beyond_two / kElements, 0.0455, 5 * std::sqrt(0.0455 / kElements));
}

TEST(RandomTensorTest, ASeedGivesTheSameBytesAgain) {
  for (const DataType type : kDataTypes) {
    std::mt19937_64 first(3), second(3), other(4);
    const client::TensorSpec spec{type, {5, 7}};
    const auto a = RandomTensor(spec, Distribution::kNormal, &first);
    const auto b = RandomTensor(spec, Distribution::kNormal, &second);
    const auto c = RandomTensor(spec, Distribution::kNormal, &other);
    EXPECT_EQ(a->data().size(), 35 * ElementBytes(type));
    EXPECT_EQ(a->data(), b->data());
    EXPECT_NE(a->data(), c->data());
    EXPECT_EQ(a->data_type(), type);
  }
}

TEST(RandomTensorTest, ShapesThatOverflowAreRefused) {
  std::mt19937_64 random(1);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(RandomTensor({DataType::kFloat32, {huge, huge}}, Distribution::kNormal, &random)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace warpcall::cli
