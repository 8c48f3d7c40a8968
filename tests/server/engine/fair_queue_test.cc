// Turns by work done are not shown here: simulation_test checks them for every job.
#include "server/engine/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/common/check.h"

namespace warpcall {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kUnit = 50'000;  // ns: a twentieth of a turn

bool Any(Job&) { return true; }

class FairQueueTest : public ::testing::Test {
 protected:
  uint64_t Push(uint64_t principal, int64_t work_ns, int64_t deadline_ns = kNoDeadline) {
    auto job = std::make_unique<Job>();
    job->key = {principal, deadline_ns, ++last_id_};
    job->input_bytes = 10;
    job->predicted_ns = work_ns;
    job->share = share_;
    queue_.Push(std::move(job));
    return last_id_;
  }

  // The principals of the next `count` jobs.
  std::vector<uint64_t> Pop(int count) {
    std::vector<uint64_t> principals;
    for (int i = 0; i < count; ++i) principals.push_back(queue_.Pop(Any)->key.principal);
    return principals;
  }

  FairQueue queue_;
  double share_ = 1;  // share of the next Push
  uint64_t last_id_ = 0;
};

TEST_F(FairQueueTest, ShortWorkGoesByDeadlineThenArrivalWhateverItsPrincipal) {
  Push(1, kUnit);
  Push(1, kUnit);
  Push(2, kUnit);
  Push(3, kUnit, 5000);
  EXPECT_THAT(Pop(4), ElementsAre(3, 1, 1, 2));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(FairQueueTest, AShareOfThreeIsThreeTimesTheWork) {
  int jobs[3] = {};
  for (const uint64_t principal : {1, 2}) {
    share_ = principal == 1 ? 3 : 1;
    for (int i = 0; i < 400; ++i) Push(principal, 40 * kUnit);
  }
  for (const uint64_t principal : Pop(400)) ++jobs[principal];
  EXPECT_NEAR(jobs[1], 300, 2);
  // Time beyond the prediction counts by the share, too.
  queue_.Correct(1, 120 * kUnit);
  queue_.Correct(2, 40 * kUnit);
  for (const uint64_t principal : Pop(80)) ++jobs[principal];
  EXPECT_NEAR(jobs[1], 360, 3);
}

TEST_F(FairQueueTest, HundredsThatMayNotRunHideNobody) {
  for (uint64_t principal = 0; principal < 300; ++principal) Push(principal, kUnit, 1000);
  const uint64_t late = Push(1000, kUnit, 3000);
  const uint64_t early = Push(1001, kUnit, 2000);
  int asked = 0;
  const auto may_run = [&](Job& job) {
    ++asked;
    return job.key.id >= late;
  };
  const std::unique_ptr<Job> first = queue_.Pop(may_run);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->key.id, early);  // still by deadline
  EXPECT_EQ(asked, 301);
  const std::unique_ptr<Job> second = queue_.Pop(may_run);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->key.id, late);
  EXPECT_EQ(queue_.Pop(may_run), nullptr);
}

TEST_F(FairQueueTest, WorkAheadIsOwnEarlierJobsAndATurnOfEveryOther) {
  Push(1, 7 * kUnit);
  Push(1, 90 * kUnit, 5000);
  Push(2, 90 * kUnit, 1000);
  Push(3, 90 * kUnit);
  Job job;
  job.key = {1, 4000, 100};
  EXPECT_EQ(queue_.WorkAheadOf(job), 20 * kUnit);
  job.key.deadline_ns = 6000;
  EXPECT_EQ(queue_.WorkAheadOf(job), 110 * kUnit);
  job.key.deadline_ns = kNoDeadline;
  EXPECT_EQ(queue_.WorkAheadOf(job), 137 * kUnit);
}

TEST_F(FairQueueTest, ThousandsOfPrincipalsComeAndGo) {
  for (uint64_t principal = 0; principal < 5000; ++principal) {
    Push(principal, kUnit);
    if (principal % 3 != 0) Pop(1);
  }
  int left = 0;
  for (; !queue_.empty(); ++left) Pop(1);
  EXPECT_EQ(left, 1667);
  EXPECT_THAT(queue_.load(), ElementsAre(0, 0, 0));
}

// A second job of one id would never be ended.
TEST_F(FairQueueTest, TakesNoTwoJobsOfOneId) {
  Push(1, kUnit);
  --last_id_;
  EXPECT_DEATH(Push(1, kUnit), "is_new");
}

TEST_F(FairQueueTest, ItsLoadsAreThoseOfItsJobs) {
  Push(1, kUnit);
  Push(2, kUnit, 5000);
  Push(2, kUnit);
  queue_.CheckInvariants();
  std::unique_ptr<Job> job = queue_.Pop(Any);
  queue_.CheckInvariants();
  const auto grow = [](Job& waiting) {
    waiting.input_bytes = 99;
    return false;
  };
  queue_.Pop(grow);
  EXPECT_DEATH(queue_.CheckInvariants(), "own == principal->load");
  if (WARPCALL_DCHECK_IS_ON) {
    share_ = 0;
    EXPECT_DEATH(Push(3, kUnit), "job->share > 0");
  }
}

}  // namespace
}  // namespace warpcall
