#include "server/inspect/surroundings.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "tests/server/nanoseconds.h"

namespace warpcall::inspect {
namespace {

using testing::kMicrosecond;
using testing::kMillisecond;

// State of the made-up machine; a pause may change it.
struct Seen {
  int64_t now_ns = 0;
  int64_t service_ns = 0;
  int64_t waited_for_core_ns = 0;
  bool others_ready = false;
  std::function<void()> on_pause = [] {};
};

class MadeUpMachine final : public Machine {
 public:
  explicit MadeUpMachine(Seen* seen) : seen_(seen) {}
  int64_t NowNs() override { return seen_->now_ns; }
  void Pause() override {
    seen_->now_ns += kMillisecond;
    seen_->on_pause();
  }
  int64_t ServiceNs() override { return seen_->service_ns; }
  int64_t WaitedForCoreNs() override { return seen_->waited_for_core_ns; }
  bool OthersReady() override { return seen_->others_ready; }

 private:
  Seen* const seen_;
};

class SurroundingsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Surroundings> Of(DeviceKind kind) {
    DeviceProperties properties;
    properties.kind = kind;
    return NewSurroundings(properties, std::make_unique<MadeUpMachine>(&seen_));
  }

  Seen seen_;
};

// Beside a server that computes a GPU's samples are not the measured kernel's alone.
TEST_F(SurroundingsTest, AServerThatComputesDisturbsAGpusSamples) {
  const auto surroundings = Of(DeviceKind::kCuda);
  const auto disturbed = [&](int64_t service_ns) {
    surroundings->Begin();
    seen_.now_ns += kMillisecond;
    seen_.service_ns += service_ns;
    return surroundings->Disturbed(kMillisecond);
  };
  EXPECT_FALSE(disturbed(0));
  EXPECT_FALSE(disturbed(49 * kMicrosecond));
  EXPECT_TRUE(disturbed(51 * kMicrosecond));
  EXPECT_FALSE(disturbed(0));
}

TEST_F(SurroundingsTest, AServerIsAtWorkBeforeItDisturbs) {
  const auto surroundings = Of(DeviceKind::kCuda);
  const auto at_work = [&](int64_t service_ns) {
    surroundings->Begin();
    seen_.now_ns += kMillisecond;
    seen_.service_ns += service_ns;
    EXPECT_FALSE(surroundings->Disturbed(kMillisecond));
    return surroundings->ServerAtWork();
  };
  EXPECT_FALSE(at_work(0));
  EXPECT_FALSE(at_work(9 * kMicrosecond));
  EXPECT_TRUE(at_work(11 * kMicrosecond));
  // While it waits for a kernel of its own it computes nothing.
  seen_.now_ns += 990 * kMillisecond;
  EXPECT_TRUE(at_work(0));
  seen_.now_ns += 10 * kMillisecond;
  EXPECT_FALSE(at_work(0));
}

TEST_F(SurroundingsTest, AServerIsAtWorkBetweenSamplesToo) {
  const auto surroundings = Of(DeviceKind::kCuda);
  seen_.now_ns += kMillisecond;
  seen_.service_ns += kMillisecond;
  surroundings->Begin();
  seen_.now_ns += kMillisecond;
  EXPECT_FALSE(surroundings->Disturbed(kMillisecond));
  EXPECT_TRUE(surroundings->ServerAtWork());
}

TEST_F(SurroundingsTest, WhatWasBeforeASampleDoesNotDisturbIt) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const auto surroundings = Of(kind);
    seen_.now_ns += 10 * kMillisecond;
    seen_.service_ns += 10 * kMillisecond;
    seen_.waited_for_core_ns += 10 * kMillisecond;
    surroundings->Begin();
    seen_.now_ns += kMillisecond;
    EXPECT_FALSE(surroundings->Disturbed(kMillisecond));
  }
}

TEST_F(SurroundingsTest, ThreadsThatWaitForACoreDisturbACpusSamples) {
  const auto surroundings = Of(DeviceKind::kCpu);
  const auto disturbed = [&](int64_t waited_ns, int64_t sample_ns) {
    surroundings->Begin();
    seen_.now_ns += sample_ns;
    seen_.waited_for_core_ns += waited_ns;
    return surroundings->Disturbed(sample_ns);
  };
  EXPECT_FALSE(disturbed(109 * kMicrosecond, 200 * kMicrosecond));
  EXPECT_TRUE(disturbed(111 * kMicrosecond, 200 * kMicrosecond));
  EXPECT_FALSE(disturbed(590 * kMicrosecond, 10 * kMillisecond));
  EXPECT_TRUE(disturbed(610 * kMicrosecond, 10 * kMillisecond));
}

TEST_F(SurroundingsTest, QuietIsWaitedFor) {
  const auto surroundings = Of(DeviceKind::kCpu);
  seen_.others_ready = true;
  seen_.on_pause = [&] { seen_.others_ready = seen_.now_ns < 7 * kMillisecond; };
  EXPECT_TRUE(surroundings->AwaitQuiet());
  EXPECT_EQ(seen_.now_ns, 7 * kMillisecond);
  // Other threads take nothing from a GPU.
  seen_.others_ready = true;
  EXPECT_TRUE(Of(DeviceKind::kCuda)->AwaitQuiet());
  EXPECT_EQ(seen_.now_ns, 7 * kMillisecond);
}

// However busy the machine is: a benchmark does not wait for good.
TEST_F(SurroundingsTest, PatienceEnds) {
  seen_.on_pause = [&] { seen_.service_ns += kMillisecond; };
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const auto surroundings = Of(kind);
    const int64_t start_ns = seen_.now_ns;
    seen_.service_ns += kMillisecond;
    surroundings->AwaitQuiet();
    EXPECT_EQ(seen_.now_ns - start_ns, 50 * kMillisecond);
    for (int i = 0; i < 10'000; ++i) {
      ++seen_.now_ns;
      ++seen_.service_ns;
      EXPECT_FALSE(surroundings->AwaitQuiet());
    }
    EXPECT_NEAR(static_cast<double>(seen_.now_ns - start_ns), 1000.0 * kMillisecond,
                51.0 * kMillisecond);
  }
}

}  // namespace
}  // namespace warpcall::inspect
