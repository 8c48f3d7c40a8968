#include "server/inspect/summary.h"

#include <gtest/gtest.h>

namespace warpcall::inspect {
namespace {

TEST(SummarizeTest, NothingIsZeros) {
  const Summary summary = Summarize({});
  EXPECT_EQ(summary.mean, 0);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(summary.min, 0);
  EXPECT_EQ(summary.p90, 0);
}

TEST(SummarizeTest, OneSampleIsEverything) {
  const Summary summary = Summarize({7});
  EXPECT_EQ(summary.mean, 7);
  EXPECT_EQ(summary.median, 7);
  EXPECT_EQ(summary.min, 7);
  EXPECT_EQ(summary.p90, 7);
}

TEST(SummarizeTest, TakesSamplesInAnyOrder) {
  const Summary summary = Summarize({10, 1, 9, 2, 8, 3, 7, 4, 6, 50});
  EXPECT_EQ(summary.mean, 10);
  EXPECT_EQ(summary.median, 6.5);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.p90, 10);
  EXPECT_EQ(Summarize({3, 1, 2}).median, 2);
  EXPECT_EQ(Summarize({3, 1, 2}).p90, 3);
}

}  // namespace
}  // namespace warpcall::inspect
