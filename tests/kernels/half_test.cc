#include "proto/common/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/common/round.h"

namespace warpcall {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
class HalfTest : public ::testing::Test {};
using HalfTypes = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, HalfTypes);

TYPED_TEST(HalfTest, EveryValueSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam value{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(FromFloat<TypeParam>(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(FromFloat<TypeParam>(wide).bits, bits);
    ASSERT_EQ(FromDouble<TypeParam>(wide).bits, bits);
  }
}

// Between every two neighbours of one sign: just under half way goes down, half way to the even
// one, just over half way up. The step past the largest finite value is the one to infinity.
TYPED_TEST(HalfTest, RoundsToNearestTiesToEven) {
  const uint16_t infinity_bits = FromFloat<TypeParam>(kInfinity).bits;
  for (uint16_t bits = 0; bits < infinity_bits; ++bits) {
    const double low = ToFloat(TypeParam{bits});
    const double below = bits == 0 ? 0 : ToFloat(TypeParam{static_cast<uint16_t>(bits - 1)});
    const uint16_t up = static_cast<uint16_t>(bits + 1);
    // Past the largest value the step is as wide as the one before it.
    const double high = up == infinity_bits ? 2 * low - below : ToFloat(TypeParam{up});
    const double middle = (low + high) / 2;
    const uint16_t even = bits % 2 == 0 ? bits : up;
    ASSERT_EQ(FromDouble<TypeParam>(middle).bits, even);
    ASSERT_EQ(FromDouble<TypeParam>(std::nextafter(middle, 0.0)).bits, bits);
    ASSERT_EQ(FromDouble<TypeParam>(std::nextafter(middle, 1e300)).bits, up);
    ASSERT_EQ(FromDouble<TypeParam>(-middle).bits, even | 0x8000);
    const float tie = static_cast<float>(middle);
    if (static_cast<double>(tie) != middle) continue;  // below float's smallest value
    ASSERT_EQ(FromFloat<TypeParam>(tie).bits, even);
    ASSERT_EQ(FromFloat<TypeParam>(std::nextafter(tie, 0.0f)).bits, bits);
    ASSERT_EQ(FromFloat<TypeParam>(std::nextafter(tie, kInfinity)).bits, up);
    ASSERT_EQ(FromFloat<TypeParam>(-tie).bits, even | 0x8000);
  }
}

TYPED_TEST(HalfTest, KeepsNanWithAnyPayload) {
  for (const uint32_t bits : {0x7F800001u, 0x7F801000u, 0x7FC00000u, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(ToFloat(FromFloat<TypeParam>(std::bit_cast<float>(bits))))) << bits;
  }
}

TYPED_TEST(HalfTest, OverflowBecomesInfinity) {
  EXPECT_EQ(ToFloat(FromFloat<TypeParam>(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_EQ(ToFloat(FromFloat<TypeParam>(-std::numeric_limits<float>::max())), -kInfinity);
}

TEST(Float16Test, KnownValues) {
  EXPECT_EQ(ToFloat(Float16{0x3C00}), 1.0f);
  EXPECT_EQ(ToFloat(Float16{0x7BFF}), 65504.0f);
  EXPECT_EQ(ToFloat(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(ToFloat(Float16{0x0400}), 0x1p-14f);
  EXPECT_EQ(FromFloat<Float16>(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(FromFloat<Float16>(65520.0f).bits, 0x7C00);
  EXPECT_EQ(FromFloat<Float16>(0x1p-25f).bits, 0x0000);
}

TEST(BFloat16Test, KnownValues) {
  EXPECT_EQ(ToFloat(BFloat16{0x3F80}), 1.0f);
  EXPECT_EQ(FromFloat<BFloat16>(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(FromFloat<BFloat16>(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3F81);
}

// 1 + 2^-11 + 2^-40 is over half way between float16's neighbours 1 and 1 + 2^-10; rounded to float
// first it would be a tie.
TEST(FromDoubleTest, RoundsOnce) {
  EXPECT_EQ(FromDouble<Float16>(1 + 0x1p-11 + 0x1p-40).bits, 0x3C01);
  EXPECT_EQ(FromDouble<Float16>(1 + 0x1p-11 - 0x1p-40).bits, 0x3C00);
  EXPECT_EQ(FromDouble<BFloat16>(1 + 0x1p-8 + 0x1p-40).bits, 0x3F81);
}

}  // namespace
}  // namespace warpcall
