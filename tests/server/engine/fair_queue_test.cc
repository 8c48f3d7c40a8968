// Whose turn it is by work done, which simulation_test holds every job against, is not shown here.
#include "server/engine/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace warpcall {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kUnit = 50'000;  // ns: a twentieth of a turn

bool Any(Job&) { return true; }

class FairQueueTest : public ::testing::Test {
 protected:
  uint64_t Push(uint64_t connection, int64_t work_ns, int64_t deadline_ns = kNoDeadline) {
    auto job = std::make_unique<Job>();
    job->key = {connection, deadline_ns, ++last_id_};
    job->input_bytes = 10;
    job->predicted_ns = work_ns;
    queue_.Push(std::move(job));
    return last_id_;
  }

  // The connections of the next `count` jobs.
  std::vector<uint64_t> Pop(int count) {
    std::vector<uint64_t> connections;
    for (int i = 0; i < count; ++i) connections.push_back(queue_.Pop(Any)->key.connection);
    return connections;
  }

  FairQueue queue_;
  uint64_t last_id_ = 0;
};

TEST_F(FairQueueTest, ShortWorkGoesByDeadlineThenArrivalWhateverItsConnection) {
  Push(1, kUnit);
  Push(1, kUnit);
  Push(2, kUnit);
  Push(3, kUnit, 5000);
  EXPECT_THAT(Pop(4), ElementsAre(3, 1, 1, 2));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(FairQueueTest, HundredsThatMayNotRunHideNobody) {
  for (uint64_t connection = 0; connection < 300; ++connection) Push(connection, kUnit, 1000);
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

TEST_F(FairQueueTest, ThousandsOfConnectionsComeAndGo) {
  for (uint64_t connection = 0; connection < 5000; ++connection) {
    Push(connection, kUnit);
    if (connection % 3 != 0) Pop(1);
  }
  int left = 0;
  for (; !queue_.empty(); ++left) Pop(1);
  EXPECT_EQ(left, 1667);
  EXPECT_THAT(queue_.load(), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace warpcall
