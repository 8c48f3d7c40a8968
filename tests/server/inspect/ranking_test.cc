#include "server/inspect/ranking.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace warpcall::inspect {
namespace {

v1::BenchmarkResult Result(double low_ns, double median_ns, double high_ns) {
  v1::BenchmarkResult result;
  result.set_median_low_ns(low_ns);
  result.set_median_ns(median_ns);
  result.set_median_high_ns(high_ns);
  return result;
}

std::vector<std::string> Verdicts(const std::vector<v1::BenchmarkResult>& results) {
  google::protobuf::RepeatedPtrField<v1::BenchmarkResult> ranked(results.begin(), results.end());
  Rank(&ranked);
  std::vector<std::string> verdicts;
  for (const v1::BenchmarkResult& result : ranked) verdicts.push_back(result.verdict());
  return verdicts;
}

TEST(RankTest, IntervalsThatOverlapAreNotTold) {
  EXPECT_EQ(
      Verdicts({Result(118, 120, 122), Result(99, 100, 102), Result(101, 103, 105),
                Result(200, 250, 300), Result(102.5, 102.6, 103)}),
      (std::vector<std::string>{"slower by 20 %", "fastest", "not distinguishable from the fastest",
                                "slower by 150 %", "slower by 3 %"}));
}

TEST(RankTest, WhatIsUnstableOrDidNotRunHasNoRank) {
  v1::BenchmarkResult unstable = Result(10, 50, 100);
  unstable.set_unstable(true);
  unstable.set_verdict("fastest");  // left from an earlier ranking
  v1::BenchmarkResult failed;
  failed.set_error("broken");
  EXPECT_EQ(Verdicts({unstable, failed, Result(99, 100, 101)}),
            (std::vector<std::string>{"", "", "not distinguishable from the fastest"}));
  unstable.set_median_ns(100);
  EXPECT_EQ(Verdicts({unstable, failed, Result(99, 100, 101)}),
            (std::vector<std::string>{"", "", "fastest"}));
  EXPECT_EQ(Verdicts({unstable, failed}), (std::vector<std::string>{"", ""}));
}

TEST(RankTest, WhatIsUnstableAndFasterBeyondDoubtIsTheFastest) {
  std::vector<v1::BenchmarkResult> results = {Result(398, 400, 402), Result(60, 90, 300),
                                              Result(50, 80, 397), Result(399, 401, 403),
                                              Result(70, 100, 398)};
  for (const size_t unstable : {1u, 2u, 4u}) results[unstable].set_unstable(true);
  EXPECT_EQ(Verdicts(results),
            (std::vector<std::string>{"slower by 400 %", "", "fastest", "slower by 401 %", ""}));
  // An interval that reaches the fastest stable one's leaves a doubt: nobody is called the fastest
  // while the one with the least median may be.
  const std::string alike = "not distinguishable from the fastest";
  results[2].set_median_high_ns(398);
  EXPECT_EQ(Verdicts(results),
            (std::vector<std::string>{"slower by 344 %", alike, "", "slower by 346 %", ""}));
  results[1].set_median_high_ns(398);
  EXPECT_EQ(Verdicts(results), (std::vector<std::string>{alike, "", "", alike, ""}));
}

// Five samples from a busy machine.
TEST(RankTest, AReferenceThatIsStableIsNotTheFastestForThat) {
  std::vector<v1::BenchmarkResult> results = {Result(183, 203, 206), Result(426, 432, 440),
                                              Result(36, 39.8, 5000)};
  results[2].set_unstable(true);
  EXPECT_EQ(Verdicts(results), (std::vector<std::string>{"not distinguishable from the fastest",
                                                         "slower by 113 %", ""}));
}

TEST(RankTest, ALittleSlowerIsNotSlowerByNothing) {
  EXPECT_EQ(Verdicts({Result(100, 100, 100), Result(100.1, 100.1, 100.1)})[1], "slower by 1 %");
}

TEST(RankTest, NothingTakesNoTime) {
  EXPECT_EQ(Verdicts({Result(0, 0, 0), Result(0, 0, 0)})[1],
            "not distinguishable from the fastest");
}

}  // namespace
}  // namespace warpcall::inspect
