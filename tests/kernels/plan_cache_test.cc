// The keys that a device's plans are kept under, and how long plans are kept.
#include "kernels/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/gelu/gelu.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

class NoPlan final : public Plan {
 public:
  explicit NoPlan(const Traits& traits) : Plan(traits) {}
  absl::Status Enqueue(const Operands&, const LaunchContext&) const override {
    return absl::OkStatus();
  }
};

Problem Gelu(int64_t elements, const char* approximate = "tanh") {
  return *MakeProblem(GeluOp(), {TensorSpec{DataType::kFloat32, {elements}}},
                      {{"approximate", std::string(approximate)}});
}

class PlanCacheTest : public ::testing::Test {
 protected:
  PlanCache::Made Get(PlanCache* cache, int row, const Problem& problem,
                      absl::Status status = absl::OkStatus()) {
    const Row wanted = {row, 0, {}};
    return cache->GetOrMake(wanted, problem, [&]() -> PlanCache::Made {
      ++made_;
      if (!status.ok()) return status;
      return std::make_shared<const NoPlan>(traits_);
    });
  }

  int made_ = 0;
  Plan::Traits traits_;
  PlanCache cache_{4, 2};
};

TEST_F(PlanCacheTest, EachRowAndProblemHasAPlanOfItsOwnThatIsMadeOnce) {
  const PlanPtr first = *Get(&cache_, 1, Gelu(8));
  EXPECT_EQ(*Get(&cache_, 1, Gelu(8)), first);
  EXPECT_NE(*Get(&cache_, 2, Gelu(8)), first);
  EXPECT_NE(*Get(&cache_, 1, Gelu(9)), first);
  EXPECT_NE(*Get(&cache_, 1, Gelu(8, "none")), first);
  EXPECT_EQ(made_, 4);
  EXPECT_EQ(*Get(&cache_, 1, Gelu(8)), first);
  EXPECT_EQ(made_, 4);
}

TEST_F(PlanCacheTest, RefusalsAreKeptAndOtherErrorsMayPass) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(Get(&cache_, 1, Gelu(8), absl::UnimplementedError("not this")).status(),
              absl::UnimplementedError("not this"));
  EXPECT_EQ(made_, 1);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(absl::IsResourceExhausted(
        Get(&cache_, 1, Gelu(9), absl::ResourceExhaustedError("memory")).status()));
  EXPECT_EQ(made_, 4);
  EXPECT_TRUE(Get(&cache_, 1, Gelu(9)).ok());
}

TEST_F(PlanCacheTest, WhatWasAskedForLongestAgoIsForgottenButNotByItsUsers) {
  const PlanPtr used = *Get(&cache_, 1, Gelu(1));
  const std::weak_ptr<const Plan> unused = *Get(&cache_, 1, Gelu(2));
  for (int64_t elements = 3; elements <= 6; ++elements)
    ASSERT_TRUE(Get(&cache_, 1, Gelu(elements)).ok());
  EXPECT_EQ(cache_.size(), 4u);
  EXPECT_TRUE(unused.expired());
  EXPECT_TRUE(used->shape().ok());
  EXPECT_NE(*Get(&cache_, 1, Gelu(1)), used);
  cache_.Clear();
  EXPECT_EQ(cache_.size(), 0u);
}

TEST_F(PlanCacheTest, FewOfThoseThatWereCompiledAreKept) {
  ASSERT_TRUE(Get(&cache_, 1, Gelu(1)).ok());
  traits_.is_compiled = true;
  for (int64_t elements = 2; elements <= 4; ++elements)
    ASSERT_TRUE(Get(&cache_, 1, Gelu(elements)).ok());
  EXPECT_EQ(cache_.size(), 3u);
  made_ = 0;
  for (const int64_t elements : {1, 3, 4}) ASSERT_TRUE(Get(&cache_, 1, Gelu(elements)).ok());
  EXPECT_EQ(made_, 0);
  ASSERT_TRUE(Get(&cache_, 1, Gelu(2)).ok());
  EXPECT_EQ(made_, 1);
  cache_.Clear();
  EXPECT_EQ(cache_.size(), 0u);
}

TEST_F(PlanCacheTest, WhoAsksForWhatIsBeingMadeWaitsAndWhoAsksForAnotherDoesNot) {
  const Row row = {1, 0, {}};
  absl::Notification making, made;
  std::atomic<int> makes{0};
  const auto make = [&]() -> PlanCache::Made {
    ++makes;
    making.Notify();
    made.WaitForNotification();
    return std::make_shared<const NoPlan>(traits_);
  };
  std::vector<PlanPtr> plans(4);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { plans[0] = *cache_.GetOrMake(row, Gelu(8), make); });
  making.WaitForNotification();
  for (size_t i = 1; i < plans.size(); ++i)
    threads.emplace_back([&, i] { plans[i] = *cache_.GetOrMake(row, Gelu(8), make); });
  EXPECT_TRUE(Get(&cache_, 1, Gelu(9)).ok());
  made.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(makes, 1);
  for (const PlanPtr& plan : plans) EXPECT_EQ(plan, plans[0]);
}

// The device returns the shape only when all callers have come.
class CrowdedPlan final : public Plan {
 public:
  static constexpr int kCrowd = 4;

  explicit CrowdedPlan(std::atomic<int>* asked) : Plan({}), asked_(*asked) {}
  absl::Status Enqueue(const Operands&, const LaunchContext&) const override {
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<LaunchShape> AskShape() const override {
    if (asked_ < 0) return absl::InternalError("asked twice");
    while (asked_ < kCrowd) std::this_thread::yield();
    asked_ = -1;
    return LaunchShape{.gpu_kernels = 3};
  }

  std::atomic<int>& asked_;
};

// Under ThreadSanitizer this also shows that the shape is ordered before its readers.
TEST(PlanTest, ManyAskForAShapeAndTheDeviceIsAskedOnce) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> asked{0};
    const CrowdedPlan plan(&asked);
    std::vector<std::thread> threads;
    for (int i = 0; i < CrowdedPlan::kCrowd; ++i)
      threads.emplace_back([&] {
        ++asked;
        const absl::StatusOr<LaunchShape> shape = plan.shape();
        ASSERT_TRUE(shape.ok()) << shape.status();
        EXPECT_EQ(shape->gpu_kernels, 3);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(asked, -1);
  }
}

TEST(PlanCacheDeathTest, KeepsAtLeastOnePlanOfEachKind) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  EXPECT_DEATH(PlanCache(0, 1), "entries_max > 0");
  EXPECT_DEATH(PlanCache(1, 0), "entries_max > 0");
}

}  // namespace
}  // namespace warpcall
