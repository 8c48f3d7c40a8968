#include "kernels/run_counts.h"

#include <gtest/gtest.h>

#include <vector>

namespace warpcall {
namespace {

class NoPlan final : public Plan {
 public:
  NoPlan() : Plan({}) {}
  absl::Status Enqueue(const Operands&, const LaunchContext&) const override {
    return absl::OkStatus();
  }
};

TEST(RunCountsTest, CountsRunsOfAPlanWithTheSameResidents) {
  RunCounts counts;
  const NoPlan plan;
  const NoPlan other;
  EXPECT_EQ(counts.Add(plan, {&plan, nullptr}), 1);
  EXPECT_EQ(counts.Add(plan, {&plan, nullptr}), 2);
  EXPECT_EQ(counts.Add(plan, {&other, nullptr}), 1);
  EXPECT_EQ(counts.Add(other, {&plan, nullptr}), 1);
  EXPECT_EQ(counts.Add(plan, {&plan, nullptr}), 3);
}

TEST(RunCountsTest, ForgetsThePlanThatRanLongestAgo) {
  RunCounts counts;
  const NoPlan kept;
  const std::vector<NoPlan> others(RunCounts::kPlansMax);
  for (const NoPlan& plan : others) {
    counts.Add(kept, {});
    EXPECT_EQ(counts.Add(plan, {}), 1);
  }
  EXPECT_EQ(counts.Add(kept, {}), static_cast<int>(others.size()) + 1);
  EXPECT_EQ(counts.Add(others.back(), {}), 2);
  EXPECT_EQ(counts.Add(others.front(), {}), 1);
}

}  // namespace
}  // namespace warpcall
