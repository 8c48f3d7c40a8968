#include "server/engine/repeats.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace warpcall {
namespace {

// Numbers its recordings.
class RecordingStream final : public Stream {
 public:
  absl::Status BindThread() override { return absl::OkStatus(); }
  void* native_handle() override { return nullptr; }
  absl::StatusOr<Buffer> AllocateMemory(size_t) override { return Buffer(); }
  absl::Status Begin(int) override { return absl::OkStatus(); }
  absl::Status Mark(Milestone) override { return absl::OkStatus(); }
  absl::Status CopyToDevice(void*, const void*, size_t) override { return absl::OkStatus(); }
  absl::Status CopyToStaging(void*, const void*, size_t) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  StreamTimes Times() override { return {}; }
  bool records() const override { return true; }
  absl::StatusOr<int> Record(absl::FunctionRef<absl::Status()> enqueue,
                             const RecordedCopies&) override {
    const absl::Status status = enqueue();
    if (!status.ok()) return status;
    kept.insert(next);
    return next++;
  }
  void Forget(int recording) override { EXPECT_EQ(kept.erase(recording), 1u); }

  int next = 0;
  std::set<int> kept;
};

class NoPlan final : public Plan {
 public:
  NoPlan() : Plan({}) {}
  absl::Status Enqueue(const Operands&, const LaunchContext&) const override {
    return absl::OkStatus();
  }
};

class RepeatsTest : public ::testing::Test {
 protected:
  // Runs job number `place`, whose operands lie at that place; returns its recording.
  int Run(int place, absl::Status launched = absl::OkStatus(), int runs = 0) {
    char* const input = memory_ + 2 * place;
    const Operands operands = {.inputs = {input}, .outputs = {input + 1}};
    const auto launch = [&] {
      ++launches_;
      return launched;
    };
    return repeats_.RecordingOf(plan_, operands, runs, [&] { return stream_.Record(launch, {}); });
  }

  char memory_[4096];
  PlanPtr plan_ = std::make_shared<NoPlan>();
  int launches_ = 0;
  RecordingStream stream_;
  Repeats repeats_{&stream_};
};

TEST_F(RepeatsTest, WhatComesTheFourthTimeIsRecordedOnceAndReplayedFromThenOn) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Run(0), -1);
  EXPECT_EQ(launches_, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Run(0), 0);
  EXPECT_EQ(launches_, 1);
}

TEST_F(RepeatsTest, OtherMemoryOrAnotherPlanIsAnotherJob) {
  for (int i = 0; i < 4; ++i) Run(0);
  EXPECT_EQ(Run(1), -1);
  const PlanPtr plan = std::exchange(plan_, std::make_shared<NoPlan>());
  EXPECT_EQ(Run(0), -1);
  plan_ = plan;
  EXPECT_EQ(Run(0), 0);
  for (int i = 0; i < 3; ++i) Run(1);
  EXPECT_EQ(Run(1), 1);
}

TEST_F(RepeatsTest, RunsOnOtherStreamsCountWhereTheyAreKnown) {
  EXPECT_EQ(Run(0, absl::OkStatus(), 2), -1);
  EXPECT_EQ(Run(0, absl::OkStatus(), 4), 0);
  EXPECT_EQ(Run(1, absl::OkStatus(), 5), -1);
  EXPECT_EQ(Run(1, absl::OkStatus(), 6), 1);
  EXPECT_EQ(launches_, 2);
}

TEST_F(RepeatsTest, WhatCannotBeRecordedIsTriedOnce) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Run(0, absl::InternalError("not in a graph")), -1);
  EXPECT_EQ(launches_, 1);
}

TEST_F(RepeatsTest, OfManyTheOneNotUsedLongestIsForgotten) {
  for (int i = 0; i < 4; ++i) Run(0);
  for (int i = 0; i < 4; ++i) Run(1);
  for (int place = 2; place < 1000; ++place) {
    Run(place);
    EXPECT_EQ(Run(0), 0);
  }
  EXPECT_EQ(stream_.kept, std::set<int>{0});
  EXPECT_EQ(Run(1), -1);
}

}  // namespace
}  // namespace warpcall
