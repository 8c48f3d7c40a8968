#include "client/cli/bench/variation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Variation VariationOver(const std::vector<std::string>& shapes, size_t inputs = 1) {
  BenchReport report;
  for (const std::string& shape : shapes) {
    BenchPoint point{.shape = shape};
    point.call.inputs.resize(inputs);
    report.points.push_back(point);
  }
  return VariationOf(report);
}

TEST(VariationTest, OneSizeThatVariesIsTheAxis) {
  const Variation variation = VariationOver({"1024x256", "1024x512", "1024x256"});
  EXPECT_EQ(variation.axis, "N of 1024xN");
  EXPECT_THAT(variation.places, ElementsAre(256, 512, 256));
  EXPECT_THAT(variation.lines, ElementsAre("", "", ""));
  EXPECT_EQ(VariationOver({"8", "16"}).axis, "N");
  EXPECT_EQ(VariationOver({"8x1024x64", "16x1024x64"}, 2).axis, "M of Mx1024x64");
  EXPECT_EQ(VariationOver({"8x1024x64", "8x1024x32"}, 1).axis, "d2 of 8x1024xd2");
  EXPECT_EQ(VariationOver({"8x4,4x16", "8x4,4x32"}, 2).axis, "d3 of 8x4,4xd3");
}

TEST(VariationTest, SizesThatAreTheSameEverywhereAreOne) {
  const Variation variation = VariationOver({"128x128x512", "256x256x512"}, 2);
  EXPECT_EQ(variation.axis, "M=N of MxNx512");
  EXPECT_THAT(variation.places, ElementsAre(128, 256));
}

TEST(VariationTest, OfAGridTheLongerSideIsTheAxis) {
  Variation variation = VariationOver({"1x8", "1x16", "1x32", "2x8", "2x16", "2x32"});
  EXPECT_EQ(variation.axis, "N of MxN");
  EXPECT_THAT(variation.lines, ElementsAre("M=1", "M=1", "M=1", "M=2", "M=2", "M=2"));
  variation = VariationOver({"1x8", "2x8", "4x8", "1x16", "2x16", "4x16"});
  EXPECT_EQ(variation.axis, "M of MxN");
  EXPECT_THAT(variation.lines, ElementsAre("N=8", "N=8", "N=8", "N=16", "N=16", "N=16"));
  EXPECT_EQ(VariationOver({"1x8", "1x16", "2x8", "2x16"}).axis, "N of MxN");
}

TEST(VariationTest, WhatNoAxisTellsApartHasNone) {
  EXPECT_THAT(VariationOver({"8x8"}).axis, IsEmpty());
  EXPECT_THAT(VariationOver({"8x8", "8x8"}).axis, IsEmpty());
  EXPECT_THAT(VariationOver({"8", "8x8"}).axis, IsEmpty());
  EXPECT_THAT(VariationOver({"0x8", "1x8"}).axis, IsEmpty());     // 0 has no place
  EXPECT_THAT(VariationOver({"8x16", "16x64"}).axis, IsEmpty());  // no grid: no line has two points
  EXPECT_THAT(VariationOver({"1x2x3", "2x3x4", "1x3x3"}).axis, IsEmpty());  // three vary
  std::vector<std::string> lines;
  for (int m = 1; m <= 9; ++m)
    for (int n = 1; n <= 9; ++n) lines.push_back(std::to_string(m) + "x" + std::to_string(n));
  EXPECT_THAT(VariationOver(lines).axis, IsEmpty());  // nine lines are a tangle
}

}  // namespace
}  // namespace warpcall::cli
