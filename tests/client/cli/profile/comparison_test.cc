#include "client/cli/profile/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace warpcall::cli {
namespace {

using client::ProfileRow;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void AddRow(std::string kind, std::string name, int64_t amount, Profiled* profiled) {
  ProfileRow& row = *profiled->report.add_rows();
  const bool is_counter = kind == "counter";
  row.set_name(std::move(name));
  row.set_calls(is_counter ? amount : 1);
  row.set_total_ns(is_counter ? 0 : amount);
  for (const auto set : {&ProfileRow::set_achieved_occupancy, &ProfileRow::set_sm_throughput,
                         &ProfileRow::set_dram_throughput})
    (row.*set)(-1);
  row.set_kind(std::move(kind));
}

// One run with one kernel of 1 ms.
Profiled OneKernel(const std::string& implementation, int64_t kernel_ns = 1'000'000) {
  Profiled profiled;
  profiled.report.set_implementation(implementation);
  profiled.report.set_iterations(1);
  profiled.device.kind = "cpu";
  profiled.device.multiprocessors = 2;
  AddRow("kernel", implementation, kernel_ns, &profiled);
  AddRow("host", "run", kernel_ns, &profiled);
  return profiled;
}

TEST(ComparisonTest, RatiosAreTheSecondsOverTheFirsts) {
  Profiled fast = OneKernel("fast");
  Profiled slow = OneKernel("slow", 3'000'000);
  AddRow("counter", "instructions", 100, &fast);
  AddRow("counter", "instructions", 250, &slow);
  AddRow("counter", "cycles", 70, &slow);
  std::map<std::string, ComparedFigure> figures;
  const Comparison comparison = Compare(fast, slow);
  for (const ComparedFigure& figure : comparison.figures) figures[figure.name] = figure;
  EXPECT_DOUBLE_EQ(comparison.time_ratio, 3);
  EXPECT_DOUBLE_EQ(figures["kernels' time"].ratio, 3);
  EXPECT_EQ(figures["kernels' time"].first, "1.00 ms");
  EXPECT_EQ(figures["kernels' time"].second, "3.00 ms");
  EXPECT_DOUBLE_EQ(figures["instructions"].ratio, 2.5);
  EXPECT_EQ(figures["cycles"].first, "-");
  EXPECT_EQ(figures["cycles"].ratio, -1);
  EXPECT_EQ(figures.count("gaps"), 0u);  // neither has any
  EXPECT_NEAR(Compare(slow, fast).time_ratio, 1.0 / 3, 1e-12);
}

TEST(ComparisonTest, ReasonsAreTheSlowerOnes) {
  Profiled fast = OneKernel("fast");
  Profiled slow = OneKernel("slow");
  AddRow("kernel", "another", 2'000'000, &slow);
  AddRow("counter", "instructions", 100, &fast);
  AddRow("counter", "instructions", 110, &slow);
  const char* const kernels = "slow takes 2 kernels a run, the other 1";
  const char* const instructions = "slow executes 1.10 times the instructions.";
  EXPECT_THAT(Compare(fast, slow).reasons,
              ElementsAre(HasSubstr(kernels), HasSubstr(instructions)));
  EXPECT_THAT(Compare(slow, fast).reasons,
              ElementsAre(HasSubstr(kernels), HasSubstr(instructions)));
}

TEST(ComparisonTest, TimesAreReasonsWhereTheyAreATenthOfTheDifference) {
  const Profiled fast = OneKernel("fast");
  const auto reasons = [&](int64_t gap_ns, int64_t copy_ns) {
    Profiled slow = OneKernel("slow", 3'000'000 - gap_ns - copy_ns);
    AddRow("gap", "nothing to do", gap_ns, &slow);
    AddRow("copy", "copy to device", copy_ns, &slow);
    return Compare(fast, slow).reasons;
  };
  EXPECT_THAT(reasons(200'000, 0),
              ElementsAre("slow leaves the device idle for 200 us per run, the other for 0 ns."));
  EXPECT_THAT(reasons(0, 200'000),
              ElementsAre("slow moves tensors for 200 us per run, the other for 0 ns."));
  EXPECT_THAT(reasons(199'000, 199'000), ElementsAre(HasSubstr("No figure explains it")));
}

TEST(ComparisonTest, SharesAreReasonsWhereTheyDifferByATenth) {
  const auto reasons = [&](int64_t slow_ns, int64_t waiting_ns) {
    Profiled fast = OneKernel("fast");
    AddRow("thread", "cpu thread 0", 2'000'000, &fast);
    Profiled slow = OneKernel("slow", 2'000'000);
    AddRow("thread", "cpu thread 0", slow_ns, &slow);
    AddRow("thread", "waiting for a core", waiting_ns, &slow);
    return Compare(fast, slow).reasons;
  };
  EXPECT_THAT(reasons(3'500'000, 0), ElementsAre("slow keeps threads busy for 87.5% of the "
                                                 "time, the other for 100.0%."));
  EXPECT_THAT(reasons(3'400'000, 400'000),
              ElementsAre("slow had to wait for a core 10.0% of its threads' time, the other 0.0%: "
                          "while the machine does other work, times say little."));
  EXPECT_THAT(reasons(3'700'000, 390'000), ElementsAre(HasSubstr("No figure explains it")));
}

TEST(ComparisonTest, NothingFollowsFromTimesThatOtherWorkTook) {
  Profiled fast = OneKernel("fast");
  Profiled slow = OneKernel("slow", 3'000'000);
  slow.report.set_inconclusive("other work took 88 % of the threads' time");
  for (const auto& [first, second] : {std::pair(&fast, &slow), {&slow, &fast}}) {
    const Comparison comparison = Compare(*first, *second);
    EXPECT_EQ(comparison.time_ratio, -1);
    EXPECT_THAT(comparison.reasons,
                ElementsAre("Inconclusive: while slow ran, other work took 88 % "
                            "of the threads' time."));
    EXPECT_FALSE(comparison.figures.empty());  // those that were measured
  }
}

TEST(ComparisonTest, SpillsAreAReason) {
  Profiled slow = OneKernel("slow", 2'000'000);
  slow.plan.set_local_memory_bytes(48);
  EXPECT_THAT(Compare(OneKernel("fast"), slow).reasons,
              ElementsAre("slow spills 48 bytes of each thread."));
}

TEST(ComparisonTest, WhatIsNearlyTheSameHasNoReasons) {
  const auto reasons = [](const Profiled& second) {
    return Compare(OneKernel("one"), second).reasons;
  };
  EXPECT_THAT(reasons(OneKernel("other", 1'049'000)), ElementsAre(HasSubstr("less than 5 %")));
  EXPECT_THAT(reasons(OneKernel("other", 960'000)), ElementsAre(HasSubstr("less than 5 %")));
  EXPECT_THAT(reasons(OneKernel("other", 1'051'000)),
              ElementsAre(HasSubstr("No figure explains it")));
  EXPECT_THAT(reasons(OneKernel("one", 9'000'000)), ElementsAre("Both names are of one."));
  EXPECT_THAT(reasons(OneKernel("other", 0)), ElementsAre(HasSubstr("ran no kernel")));
}

}  // namespace
}  // namespace warpcall::cli
