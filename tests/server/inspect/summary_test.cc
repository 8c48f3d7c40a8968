#include "server/inspect/summary.h"

#include <gtest/gtest.h>

namespace warpcall::inspect {
namespace {

TEST(SummarizeTest, OneSampleIsEverythingAndNothingIsZeros) {
  for (const double sample : {0, 7}) {
    const Summary summary = Summarize(sample == 0 ? std::vector<double>() : std::vector{sample});
    EXPECT_EQ(summary.mean, sample);
    EXPECT_EQ(summary.median, sample);
    EXPECT_EQ(summary.min, sample);
    EXPECT_EQ(summary.p90, sample);
  }
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
