#include "server/inspect/row_timer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "kernels/gelu/gelu.h"
#include "tests/server/fake_device.h"

namespace warpcall::inspect {
namespace {

// A stream with a clock of its own: a launch takes kernel_ns, one by one a gap more.
class RecordingStream final : public Stream {
 public:
  absl::Status BindThread() override { return absl::OkStatus(); }
  void* native_handle() override { return this; }
  absl::StatusOr<Buffer> AllocateMemory(size_t bytes) override {
    return Buffer(
        std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), bytes,
        [](void*, void* data, size_t) { std::free(data); }, nullptr);
  }
  absl::Status Begin(int) override { return absl::OkStatus(); }
  absl::Status Mark(Milestone milestone) override {
    if (milestone == Milestone::kInputsReady) marked_ns_ = now_ns_;
    if (milestone == Milestone::kKernelDone) times_.kernel_ns = now_ns_ - marked_ns_;
    return absl::OkStatus();
  }
  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToStaging(void* to, const void* from, size_t bytes) override {
    return CopyToDevice(to, from, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  StreamTimes Times() override { return times_; }

  bool records() const override { return records_; }
  absl::StatusOr<int> Record(absl::FunctionRef<absl::Status()> enqueue,
                             const RecordedCopies&) override {
    recording_ = true;
    std::vector<const void*>& inputs = recordings_[next_recording_];
    recorded_ = &inputs;
    const absl::Status status = enqueue();
    recording_ = false;
    if (!status.ok()) {
      recordings_.erase(next_recording_);
      return status;
    }
    return next_recording_++;
  }
  absl::Status Replay(int recording) override {
    ++replays_;
    const std::vector<const void*>& inputs = recordings_.at(recording);
    times_.kernel_ns = static_cast<int64_t>(inputs.size()) * replayed_ns_;
    return absl::OkStatus();
  }
  void Forget(int recording) override { recordings_.erase(recording); }

  absl::Status Launched(const void* input) {
    if (recording_) {
      if (refuses_) return absl::InternalError("not to be recorded");
      recorded_->push_back(input);
      return absl::OkStatus();
    }
    launched_.push_back(input);
    now_ns_ += launched_ns_;
    return absl::OkStatus();
  }

  bool records_ = true;
  bool refuses_ = false;
  int64_t launched_ns_ = 3000;
  int64_t replayed_ns_ = 2000;
  int replays_ = 0;
  std::vector<const void*> launched_;  // inputs
  std::map<int, std::vector<const void*>> recordings_;

 private:
  int64_t now_ns_ = 0;
  int64_t marked_ns_ = 0;
  StreamTimes times_;
  bool recording_ = false;
  std::vector<const void*>* recorded_ = nullptr;
  int next_recording_ = 0;
};

class RowTimerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSets = 7;

  RowTimerTest() {
    row_.name = "fake";
    row_.supports = SupportsAll;
    row_.plan = PlanBy([](const Problem&, const Operands& operands, const LaunchContext& context) {
      return static_cast<RecordingStream*>(context.stream)->Launched(operands.inputs[0]);
    });
    sets_.emplace(
        *OperandSets::Create({.problem = &problem_, .sets = kSets}, properties_, &stream_, &pool_));
  }

  std::unique_ptr<RowTimer> Time(const TimingPlan& plan) {
    auto timer = std::make_unique<RowTimer>(*row_.plan(problem_, {.device = &properties_}),
                                            RowTimer::Shared{&stream_, &*sets_}, plan, nullptr);
    EXPECT_TRUE(timer->First().ok());
    if (!timer->done()) {
      EXPECT_TRUE(timer->WarmUp().ok());
    }
    while (!timer->done()) {
      EXPECT_TRUE(timer->Sample().ok());
    }
    return timer;
  }

  const TimingPlan plan_{.warmup_launches = 10, .samples = 5, .ns_max = int64_t{60'000'000'000}};
  const Problem problem_ = *MakeProblem(GeluOp(), {{DataType::kFloat32, {100}}}, {});
  DeviceProperties properties_;
  cpu::ThreadPool pool_{1};
  RecordingStream stream_;
  std::optional<OperandSets> sets_;
  Implementation row_ = {};
};

TEST_F(RowTimerTest, ASampleIsARecordingOfAMillisecondOverAllSets) {
  const auto timer = Time(plan_);
  EXPECT_EQ(timer->samples_ns(), std::vector<double>(5, 2000.0));
  EXPECT_GE(timer->launches_per_sample() * 2000, 1'000'000);
  EXPECT_EQ(timer->launches_per_sample() % kSets, 0);
  ASSERT_EQ(stream_.recordings_.size(), 1u);
  const std::vector<const void*>& inputs = stream_.recordings_.begin()->second;
  EXPECT_EQ(static_cast<int64_t>(inputs.size()), timer->launches_per_sample());
  EXPECT_EQ(std::set<const void*>(inputs.begin(), inputs.end()).size(), size_t{kSets});
  for (size_t i = 1; i < inputs.size(); ++i) ASSERT_NE(inputs[i], inputs[i - 1]) << i;
}

TEST_F(RowTimerTest, RecordingsAreForgottenInTheEnd) {
  Time(plan_).reset();
  EXPECT_TRUE(stream_.recordings_.empty());
}

TEST_F(RowTimerTest, ARecordingThatIsSlowerThanItsLaunchesIsNotUsed) {
  stream_.replayed_ns_ = 4000;
  const auto timer = Time(plan_);
  EXPECT_EQ(timer->samples_ns(), std::vector<double>(5, 3000.0));
  EXPECT_TRUE(stream_.recordings_.empty());
}

TEST_F(RowTimerTest, ARowThatRefusesToBeRecordedIsLaunched) {
  stream_.refuses_ = true;
  const auto timer = Time(plan_);
  EXPECT_EQ(timer->samples_ns(), std::vector<double>(5, 3000.0));
  EXPECT_EQ(timer->launches_per_sample(), 334);
}

TEST_F(RowTimerTest, ALongRowIsLaunchedOnceForASampleOnTheNextSetEachTime) {
  stream_.launched_ns_ = stream_.replayed_ns_ = 5'000'000;
  const auto timer = Time(plan_);
  EXPECT_EQ(timer->launches_per_sample(), 1);
  EXPECT_EQ(stream_.replays_, 0);
  const std::vector<const void*> last(stream_.launched_.end() - 5, stream_.launched_.end());
  EXPECT_EQ(std::set<const void*>(last.begin(), last.end()).size(), 5u);
}

TEST_F(RowTimerTest, AStreamThatDoesNotRecordIsGivenShorterSamples) {
  stream_.records_ = false;
  EXPECT_EQ(Time(plan_)->launches_per_sample(), 67);  // 200 us of 3 us each
  stream_.launched_ns_ = 200'000;
  EXPECT_EQ(Time(plan_)->launches_per_sample(), 1);
}

TEST_F(RowTimerTest, WarmsUpAsLongAsAsked) {
  stream_.records_ = false;
  stream_.launched_ns_ = 1'000'000;
  Time({.warmup_launches = 37, .samples = 1, .ns_max = plan_.ns_max});
  EXPECT_GE(stream_.launched_.size(), 38u);
}

TEST_F(RowTimerTest, WhenTheFirstLaunchTakesAllTheTimeItIsTheSample) {
  const auto timer = Time({.warmup_launches = 10, .samples = 5, .ns_max = 0});
  EXPECT_EQ(timer->samples_ns(), std::vector<double>(1, 3000.0));
  EXPECT_EQ(timer->launches_per_sample(), 1);
  EXPECT_EQ(stream_.launched_.size(), 1u);
}

TEST_F(RowTimerTest, ASampleIsTakenAgainAsOftenAsThereAreSamples) {
  stream_.records_ = false;
  const auto timer = Time(plan_);
  for (int i = 0; i < plan_.samples; ++i) {
    stream_.launched_ns_ = 1000 * i;
    EXPECT_TRUE(timer->Retake());
    EXPECT_FALSE(timer->done());
    ASSERT_TRUE(timer->Sample().ok());
    EXPECT_EQ(timer->samples_ns().back(), 1000.0 * i);
    EXPECT_TRUE(timer->done());
  }
  EXPECT_FALSE(timer->Retake());
  EXPECT_EQ(timer->samples_ns().size(), 5u);
}

TEST_F(RowTimerTest, LittleNoiseWithASampleIsNotLittleWithoutIt) {
  stream_.records_ = false;
  const auto timer = Time({.samples = 100, .ns_max = plan_.ns_max, .max_noise = 0.01});
  EXPECT_EQ(timer->samples_ns().size(), 10u);
  EXPECT_TRUE(timer->Retake());
  EXPECT_FALSE(timer->done());
}

TEST_F(RowTimerTest, WithoutSamplesThereIsNoneToTakeAgain) {
  stream_.records_ = false;
  const auto timer = Time({.samples = 100, .ns_max = plan_.ns_max, .max_noise = 0.01});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(timer->Retake());
  EXPECT_TRUE(timer->samples_ns().empty());
  EXPECT_FALSE(timer->Retake());
}

TEST_F(RowTimerTest, SamplesMayBePlannedAnew) {
  stream_.records_ = false;
  const auto timer = Time({.samples = 100, .ns_max = plan_.ns_max, .max_noise = 0.01});
  timer->PlanSamples(12);
  while (!timer->done()) ASSERT_TRUE(timer->Sample().ok());
  EXPECT_EQ(timer->samples_ns().size(), 12u);
  timer->PlanSamples(100);
  while (!timer->done()) ASSERT_TRUE(timer->Sample().ok());
  EXPECT_EQ(timer->samples_ns().size(), 15u);
}

TEST_F(RowTimerTest, LaunchesThatTakeNoTimeAreTimed) {
  stream_.launched_ns_ = stream_.replayed_ns_ = 0;
  for (const bool records : {false, true}) {
    stream_.records_ = records;
    EXPECT_EQ(Time(plan_)->samples_ns(), std::vector<double>(5, 0.0));
  }
}

}  // namespace
}  // namespace warpcall::inspect
