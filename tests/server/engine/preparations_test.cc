// A preparation of an implementation, such as the search of an algorithm, concerns only requests
// that need the same one.
#include "server/engine/preparations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/common/status_macros.h"
#include "tests/server/engine/engine_fixture.h"

namespace warpcall {
namespace {

using testing::Call;

std::function<absl::Status(const PlanContext&)>& OnPrepare() {
  static auto* const on_prepare = new std::function<absl::Status(const PlanContext&)>;
  return *on_prepare;
}

absl::StatusOr<PlanPtr> PlanSlowly(const Problem& problem, const PlanContext& context) {
  RETURN_IF_ERROR(OnPrepare()(context));
  return PlanBy(testing::LaunchDouble, testing::InputBytes)(problem, context);
}

class PreparationsTest : public testing::EngineTest {
 protected:
  PreparationsTest() {
    std::vector<Implementation> rows = {registry_.rows()[0].implementation};
    rows.push_back(rows[0]);
    rows[1].name = "searched";
    rows[1].slow_to_plan = true;
    rows[1].plan = PlanSlowly;
    registry_ = Registry();
    registry_.Add(testing::DoubleOp(), rows);
    OnPrepare() = [](const PlanContext&) { return absl::OkStatus(); };
  }

  std::unique_ptr<Job> MakeSearched(Call* call, size_t elements = 100) {
    std::unique_ptr<Job> job = MakeJob(call, elements);
    job->row = &registry_.rows()[1];
    return job;
  }

  void Submit(std::unique_ptr<Job> job) { ASSERT_TRUE(engine_->Submit(&job).ok()); }
};

TEST_F(PreparationsTest, HoldUpOnlyThoseWhoAskForTheSame) {
  absl::Notification is_preparing;
  absl::Notification go;
  std::atomic<int> at_once{0};
  OnPrepare() = [&](const PlanContext&) {
    EXPECT_EQ(++at_once, 1);
    if (!is_preparing.HasBeenNotified()) is_preparing.Notify();
    go.WaitForNotification();
    --at_once;
    return absl::OkStatus();
  };
  Call first, same, leaves;
  Submit(MakeSearched(&first));
  is_preparing.WaitForNotification();
  Submit(MakeSearched(&same));
  std::unique_ptr<Job> job = MakeSearched(&leaves);
  const JobKey key = job->key;
  Submit(std::move(job));
  // More than there are lanes.
  for (int i = 0; i < 5; ++i) {
    Call other;
    Submit(MakeJob(&other));
    other.done.WaitForNotification();
    EXPECT_TRUE(other.status.ok()) << other.status;
  }
  EXPECT_EQ(engine_->Snapshot()[0].queue_depth, 2);
  leaves.cancelled = true;
  engine_->Cancel(0, key);
  EXPECT_EQ(leaves.status.code(), absl::StatusCode::kCancelled);
  go.Notify();
  for (Call* const call : {&first, &same}) {
    call->done.WaitForNotification();
    EXPECT_TRUE(call->status.ok()) << call->status;
    EXPECT_EQ(call->output[99], 199);
  }
}

TEST_F(PreparationsTest, AreTriedAgainByTheNextWhenTheyFail) {
  std::atomic<int> prepared{0};
  OnPrepare() = [&](const PlanContext&) {
    return ++prepared == 1 ? absl::InternalError("the first") : absl::OkStatus();
  };
  Call first, second;
  Run(&first, MakeSearched(&first));
  EXPECT_EQ(first.status.message(), "the first");
  Run(&second, MakeSearched(&second));
  EXPECT_TRUE(second.status.ok()) << second.status;
}

TEST_F(PreparationsTest, EndWithTheJobThatWaitsForThemAndAreTriedAgainByTheNext) {
  absl::Notification is_preparing;
  OnPrepare() = [&](const PlanContext& context) -> absl::Status {
    if (is_preparing.HasBeenNotified()) return absl::OkStatus();
    is_preparing.Notify();
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (!IsSet(context.stop) && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
    return absl::UnavailableError("given up");
  };
  Call first, second;
  std::unique_ptr<Job> job = MakeSearched(&first);
  const JobKey key = job->key;
  Submit(std::move(job));
  is_preparing.WaitForNotification();
  first.cancelled = true;
  engine_->Cancel(0, key);
  first.done.WaitForNotification();
  EXPECT_EQ(first.status.code(), absl::StatusCode::kCancelled) << first.status;
  Run(&second, MakeSearched(&second));
  EXPECT_TRUE(second.status.ok()) << second.status;
}

TEST_F(PreparationsTest, TheDrainEndsThoseThatWait) {
  absl::Notification is_preparing;
  absl::Notification go;
  OnPrepare() = [&](const PlanContext&) {
    is_preparing.Notify();
    go.WaitForNotification();
    return absl::OkStatus();
  };
  Call first, same;
  Submit(MakeSearched(&first));
  is_preparing.WaitForNotification();
  Submit(MakeSearched(&same));
  const Engine::Unfinished left = engine_->EndAll();
  EXPECT_EQ(left.waiting, 1);
  EXPECT_EQ(left.running, 1);
  EXPECT_EQ(same.status.code(), absl::StatusCode::kUnavailable);
  go.Notify();
  ASSERT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
}

TEST_F(PreparationsTest, AreOneForEachRowAndProblemUntilTheDeviceIsStartedAgain) {
  Preparations preparations;
  const Row& row = registry_.rows()[1];
  Problem problem;
  problem.inputs = {{DataType::kFloat32, {3, 4}}};
  problem.outputs = {problem.inputs[0]};
  problem.attributes = {true};
  EXPECT_EQ(preparations.Of(registry_.rows()[0], problem, 0), nullptr);
  const std::shared_ptr<Preparation> known = preparations.Of(row, problem, 0);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(preparations.Of(row, problem, 0), known);
  EXPECT_NE(preparations.Of(row, problem, 1), known);
  Problem other = problem;
  other.attributes = {false};
  EXPECT_NE(preparations.Of(row, other, 0), known);
  other = problem;
  other.inputs[0].dims = {4, 3};
  EXPECT_NE(preparations.Of(row, other, 0), known);
  other = problem;
  other.inputs[0].data_type = DataType::kFloat16;
  EXPECT_NE(preparations.Of(row, other, 0), known);
}

}  // namespace
}  // namespace warpcall
