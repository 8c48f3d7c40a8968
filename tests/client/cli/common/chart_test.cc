#include "client/cli/common/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Labels(const Axis& axis) {
  std::vector<std::string> labels;
  for (const Tick& tick : axis.ticks) labels.push_back(tick.label);
  return labels;
}

TEST(AxisTest, TimesOverDecadesHaveTicksAtPowersOfTen) {
  EXPECT_THAT(Labels(DecimalAxis({900, 1.2e6}, TimeLabel)),
              ElementsAre("1 us", "10 us", "100 us", "1 ms"));
}

TEST(AxisTest, NarrowRangesHaveTicksBetweenPowersOfTen) {
  EXPECT_THAT(Labels(DecimalAxis({1500, 9000}, TimeLabel)), ElementsAre("2 us", "5 us", "10 us"));
}

TEST(AxisTest, BytesHaveTicksAtPowersOfTwo) {
  EXPECT_THAT(Labels(BinaryAxis({1 << 20, 16 << 20}, BytesLabel)),
              ElementsAre("1 MiB", "2 MiB", "4 MiB", "8 MiB", "16 MiB"));
}

TEST(AxisTest, TicksAreFewLyingWithinAndAscendingWhateverTheRange) {
  for (double least = 1e-3; least < 1e12; least *= 7) {
    for (const double ratio : {1.0, 1.5, 30.0, 4e3, 1e6, 1e12}) {
      const std::vector<double> values = {least, least * ratio};
      for (const Axis& axis : {DecimalAxis(values, PlainLabel), BinaryAxis(values, PlainLabel),
                               EvenAxis(values, 0, PlainLabel)}) {
        EXPECT_GE(axis.ticks.size(), 2u) << least << " x " << ratio;
        EXPECT_LE(axis.ticks.size(), 9u) << least << " x " << ratio;
        double before = -1;
        for (const Tick& tick : axis.ticks) {
          EXPECT_GT(tick.value, before);
          before = tick.value;
          EXPECT_GE(axis.Place(tick.value), -1e-9);
          EXPECT_LE(axis.Place(tick.value), 1 + 1e-9);
        }
        for (const double value : values) {
          EXPECT_GT(axis.Place(value), 0);
          EXPECT_LT(axis.Place(value), 1);
        }
      }
    }
  }
}

TEST(AxisTest, EvenAxesBeginAtZeroAndReachTheirLeastEnd) {
  const Axis axis = EvenAxis({0.3, 0.9}, 1.04, PercentLabel);
  EXPECT_THAT(Labels(axis), ElementsAre("0%", "20%", "40%", "60%", "80%", "100%"));
  EXPECT_EQ(axis.low, 0);
  EXPECT_EQ(axis.high, 1.04);
  EXPECT_THAT(Labels(EvenAxis({3.1}, 1.04, PercentLabel)),
              ElementsAre("0%", "50%", "100%", "150%", "200%", "250%", "300%"));
}

TEST(AxisTest, LabelsHaveTheUnitThatFits) {
  EXPECT_EQ(TimeLabel(500), "500 ns");
  EXPECT_EQ(TimeLabel(1000), "1 us");
  EXPECT_EQ(TimeLabel(2e10), "20 s");
  EXPECT_EQ(BytesLabel(65536), "64 KiB");
  EXPECT_EQ(BytesLabel(0.5), "0.5 B");
  EXPECT_EQ(CountLabel(5e12), "5 T");
  EXPECT_EQ(CountLabel(50), "50");
}

}  // namespace
}  // namespace warpcall::cli
