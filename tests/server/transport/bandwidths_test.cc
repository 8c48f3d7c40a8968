#include "server/transport/bandwidths.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "tests/e2e/eventually.h"
#include "tests/server/engine/engine_fixture.h"
#include "tests/server/nanoseconds.h"

namespace warpcall {
namespace {

using testing::Call;
using testing::Eventually;
using testing::kSecond;

// Two devices, a clock of the test's, and an inspector whose processes record their start, and
// fail.
class BandwidthsTest : public testing::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    inspect::Inspector::Options options;
    options.clock = [this] {
      ++looks_;
      return now_ns_.load();
    };
    options.start =
        [this](const inspect::Inquiry& inquiry) -> absl::StatusOr<std::unique_ptr<process::Child>> {
      const int device = inquiry.device == "fake:0" ? 0 : 1;
      const bool hangs = hangs_ && device == 0;
      if (hangs) EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0);
      started_ns_[device] = now_ns_.load();
      if (hangs) return std::make_unique<process::Child>(process::Channel(ends_[0]));
      return absl::InternalError("nothing is measured here");
    };
    inspector_ = std::make_unique<inspect::Inspector>(std::move(options));
  }

  // Passes time in steps that the inspector looks at, until all are measured.
  void Pass(int64_t ns) {
    const int64_t step_ns = ns > 100 * kSecond ? kSecond : kSecond / 10;
    for (const int64_t end_ns = now_ns_ + ns; now_ns_ < end_ns;) {
      now_ns_ += step_ns;
      const int64_t before = looks_;
      inspector_->Wake();
      while (looks_ == before && started_ns_[1] == 0) std::this_thread::yield();
    }
  }

  // Lets time pass until the device is measured.
  void AwaitStart(int device) {
    ASSERT_TRUE(Eventually([&] {
      Pass(kSecond);
      return started_ns_[device] > 0;
    }));
  }

  void Measure() {
    MeasureBandwidths(engine_.get(), inspector_.get(), [this] { return now_ns_.load(); });
  }

  // Until go_.
  void BeBusyWith(Call* call) {
    absl::BlockingCounter reached(1);
    BlockLanes(&reached, &go_);
    std::unique_ptr<Job> job = MakeJob(call);
    ASSERT_TRUE(engine_->Submit(&job).ok());
    reached.Wait();
  }

  bool hangs_ = false;      // the process that measures the first
  int ends_[2] = {-1, -1};  // its socket
  absl::Notification go_;
  std::atomic<int64_t> looks_{0};  // at the clock
  std::atomic<int64_t> started_ns_[2] = {0, 0};
  std::unique_ptr<inspect::Inspector> inspector_;  // last: uses the above
};

TEST_F(BandwidthsTest, QuietDevicesAreMeasuredOneAfterTheOtherAfterTwoSeconds) {
  Measure();
  Pass(3 * kSecond);
  EXPECT_TRUE(Eventually([this] { return started_ns_[0] > 0; }));
  EXPECT_GE(started_ns_[0], 2 * kSecond);
  EXPECT_EQ(started_ns_[1], 0);
  EXPECT_TRUE(Eventually([this] {
    Pass(kSecond);
    return started_ns_[1] > 0;
  }));
  EXPECT_GE(started_ns_[1], started_ns_[0] + 2 * kSecond);
}

TEST_F(BandwidthsTest, AMeasurementThatHangsEndsAfterHalfAMinute) {
  hangs_ = true;
  Measure();
  Pass(3 * kSecond);
  ASSERT_TRUE(Eventually([this] { return started_ns_[0] > 0; }));
  Pass(20 * kSecond);
  pollfd end = {ends_[1], 0, 0};
  EXPECT_EQ(poll(&end, 1, 0), 0);
  Pass(15 * kSecond);
  EXPECT_EQ(poll(&end, 1, 0), 1);
  EXPECT_NE(end.revents & POLLHUP, 0);
  EXPECT_TRUE(Eventually([this] {
    Pass(kSecond);
    return started_ns_[1] > 0;
  }));
  close(ends_[1]);
}

TEST_F(BandwidthsTest, ABusyDeviceIsLeftAloneForHalfAMinute) {
  Call call;
  BeBusyWith(&call);
  Measure();
  Pass(32 * kSecond);
  EXPECT_TRUE(Eventually([this] { return started_ns_[0] > 0; }));
  EXPECT_GE(started_ns_[0], 30 * kSecond);
  go_.Notify();
  call.done.WaitForNotification();
}

TEST_F(BandwidthsTest, ADeviceIsMeasuredOnceItIsQuiet) {
  Call call;
  BeBusyWith(&call);
  Measure();
  Pass(5 * kSecond);
  EXPECT_EQ(started_ns_[0], 0);
  go_.Notify();
  call.done.WaitForNotification();
  ASSERT_TRUE(engine_->AwaitIdle(absl::Seconds(60)));
  Pass(5 * kSecond);
  EXPECT_TRUE(Eventually([this] { return started_ns_[0] > 0; }));
  EXPECT_LT(started_ns_[0], 11 * kSecond);
}

TEST_F(BandwidthsTest, DevicesWithoutTwoReadingsThatAgreeAreMeasuredLessAndLessOften) {
  Measure();
  int64_t last_ns = 0;
  double reading = 1;
  for (const int64_t pause : {0, 60, 120, 240}) {
    AwaitStart(1);
    EXPECT_GE(started_ns_[0] - last_ns, (pause + 2) * kSecond);
    EXPECT_LT(started_ns_[0] - last_ns, (pause + 10) * kSecond);
    last_ns = started_ns_[1];
    started_ns_[0] = started_ns_[1] = 0;
    reading *= 2;
    for (const int device : {0, 1}) engine_->SetBandwidth(device, reading);
  }
}

TEST_F(BandwidthsTest, ADeviceWithTwoReadingsThatAgreeIsNotMeasuredAgain) {
  // Keeps the inspector looking at the clock when nothing else waits.
  const std::atomic<bool> cancelled{false};
  auto other = std::make_unique<inspect::Task>();
  other->not_before_ns = std::numeric_limits<int64_t>::max();
  other->cancelled = &cancelled;
  other->next = [](const absl::Status&) { return absl::InternalError("its time has not come"); };
  other->done = [](const absl::StatusOr<std::string>&) {};
  ASSERT_TRUE(inspector_->Submit(&other).ok());
  Measure();
  AwaitStart(0);
  engine_->SetBandwidth(0, 1e12);
  engine_->SetBandwidth(0, 1.05e12);
  AwaitStart(1);
  started_ns_[0] = started_ns_[1] = 0;
  AwaitStart(1);
  EXPECT_EQ(started_ns_[0], 0);
  engine_->SetBandwidth(1, 1e12);
  engine_->SetBandwidth(1, 0.95e12);
  started_ns_[1] = 0;
  // One more was arranged before these readings were there.
  Pass(200 * kSecond);
  started_ns_[1] = 0;
  Pass(300 * kSecond);
  EXPECT_EQ(started_ns_[0], 0);
  EXPECT_EQ(started_ns_[1], 0);
  inspector_->EndAll();
}

TEST_F(BandwidthsTest, ABusyDeviceIsNotMeasuredAgain) {
  Measure();
  AwaitStart(1);
  started_ns_[0] = started_ns_[1] = 0;
  Call call;
  BeBusyWith(&call);
  AwaitStart(1);
  EXPECT_EQ(started_ns_[0], 0);
  go_.Notify();
  call.done.WaitForNotification();
}

}  // namespace
}  // namespace warpcall
