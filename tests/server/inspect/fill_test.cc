#include "server/inspect/fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <vector>

#include "proto/common/dispatch.h"

namespace warpcall::inspect {
namespace {

constexpr int64_t kElements = int64_t{1} << 22;

std::vector<float> Draw(uint64_t seed, int input, int64_t elements = kElements) {
  std::vector<float> values(static_cast<size_t>(elements));
  NormalSequence(seed, input).Write(DataType::kFloat32, 0, elements, values.data());
  return values;
}

double Moment(const std::vector<float>& values, int power) {
  double sum = 0;
  for (const float value : values) sum += std::pow(static_cast<double>(value), power);
  return sum / static_cast<double>(values.size());
}

// The mean of x^p over n values has the variance (E x^2p - (E x^p)^2) / n, with E x^2 = 1, E x^4 =
// 3, E x^6 = 15, E x^8 = 105. Seeds are fixed; 5 standard deviations leave room for another choice.
TEST(NormalSequenceTest, HasTheMomentsOfTheNormalDistribution) {
  for (const uint64_t seed : {0u, 1u, 12345u}) {
    const std::vector<float> values = Draw(seed, 0);
    const double n = static_cast<double>(values.size());
    EXPECT_NEAR(Moment(values, 1), 0, 5 * std::sqrt(1 / n)) << seed;
    EXPECT_NEAR(Moment(values, 2), 1, 5 * std::sqrt(2 / n)) << seed;
    EXPECT_NEAR(Moment(values, 3), 0, 5 * std::sqrt(15 / n)) << seed;
    EXPECT_NEAR(Moment(values, 4), 3, 5 * std::sqrt(96 / n)) << seed;
  }
}

// Kolmogorov and Smirnov's distance exceeds c / sqrt(n) with a probability of 2 exp(-2 c^2): 1e-6
// for c = 2.69.
TEST(NormalSequenceTest, HasTheDistributionFunctionOfTheNormalDistribution) {
  std::vector<float> values = Draw(7, 0);
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = 0.5 * std::erfc(-values[i] / std::numbers::sqrt2);
    distance = std::max({distance, expected - static_cast<double>(i) / n,
                         static_cast<double>(i + 1) / n - expected});
  }
  EXPECT_LT(distance, 2.69 / std::sqrt(n));
}

// A sum of uniforms would end at 3 or 4. The count is binomial, nearly Poisson's.
TEST(NormalSequenceTest, HasTails) {
  const std::vector<float> values = Draw(3, 0);
  for (const double bound : {3.0, 4.0}) {
    const auto beyond = static_cast<double>(
        std::count_if(values.begin(), values.end(), [&](float x) { return std::fabs(x) > bound; }));
    const double expected =
        static_cast<double>(values.size()) * std::erfc(bound / std::numbers::sqrt2);
    EXPECT_NEAR(beyond, expected, 5 * std::sqrt(expected)) << bound;
  }
}

// Neighbours, the two values of one hash, inputs and seeds: a sample correlation of independent
// values has the standard deviation 1 / sqrt(n).
TEST(NormalSequenceTest, IsIndependentWithinAndBetweenSequences) {
  const std::vector<float> values = Draw(1, 0);
  const double bound = 5 / std::sqrt(static_cast<double>(kElements));
  const auto correlation = [&](const std::vector<float>& other, size_t shift) {
    double sum = 0;
    for (size_t i = 0; i + shift < values.size(); ++i)
      sum += static_cast<double>(values[i]) * other[i + shift];
    return sum / static_cast<double>(values.size());
  };
  for (const size_t shift : {1u, 2u, 127u, 128u, 256u, 4096u})
    EXPECT_NEAR(correlation(values, shift), 0, bound) << shift;
  EXPECT_NEAR(correlation(Draw(1, 1), 0), 0, bound);
  EXPECT_NEAR(correlation(Draw(2, 0), 0), 0, bound);
}

TEST(NormalSequenceTest, DependsOnSeedAndInputOnly) {
  EXPECT_EQ(Draw(5, 1, 1000), Draw(5, 1, 1000));
  EXPECT_NE(Draw(5, 1, 1000), Draw(6, 1, 1000));
  EXPECT_NE(Draw(5, 1, 1000), Draw(5, 0, 1000));
}

// Compares with values that were computed once: every machine must draw the same bits.
TEST(NormalSequenceTest, HasTheSameBitsEverywhere) {
  const std::vector<float> values = Draw(42, 0, kElements);
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a (Fowler, Noll, Vo)
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((bits >> shift) & 0xFF)) * 0x100000001b3u;
  }
  EXPECT_EQ(hash, 0x359a27dc264be7a7u);
}

TEST(NormalSequenceTest, AnyPartIsThatPartOfTheWhole) {
  const std::vector<float> whole = Draw(9, 2, 3000);
  const NormalSequence sequence(9, 2);
  for (const int64_t first : {0, 1, 127, 128, 255, 256, 257, 1000}) {
    for (const int64_t count : {0, 1, 2, 255, 256, 257, 1999}) {
      std::vector<float> part(static_cast<size_t>(count));
      sequence.Write(DataType::kFloat32, first, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
          << first << " + " << count;
    }
  }
}

TEST(FillTest, RoundsToTheDataTypeWhateverTheThreads) {
  constexpr int64_t kCount = 100'003;
  const std::vector<float> whole = Draw(11, 0, kCount);
  for (const int threads : {1, 3}) {
    cpu::ThreadPool pool(threads);
    for (const DataType type : kDataTypes) {
      DispatchDataType(type, [&]<typename T>(T) {
        std::vector<T> filled(kCount);
        Fill({type, {kCount}}, NormalSequence(11, 0), pool, filled.data());
        int64_t wrong = 0;
        for (int64_t i = 0; i < kCount; ++i)
          wrong += ToFloat(filled[i]) != ToFloat(FromFloat<T>(whole[i]));
        EXPECT_EQ(wrong, 0) << DataTypeName(type) << ", " << threads << " threads";
      });
    }
  }
}

TEST(FillTest, NothingIsWrittenOfNothing) {
  cpu::ThreadPool pool(2);
  Fill({DataType::kFloat32, {0, 5}}, NormalSequence(1, 0), pool, nullptr);
}

}  // namespace
}  // namespace warpcall::inspect
