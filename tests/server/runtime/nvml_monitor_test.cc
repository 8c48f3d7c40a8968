// The monitor's readings, with an NVML that the test controls.
#include "server/runtime/cuda/nvml_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/time/clock.h"
#include "tests/server/runtime/fake_nvml.h"

namespace warpcall::nvml {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::StartsWith;
using warpcall::testing::FakeNvml;

const MonitorOptions kFast = {.period = absl::Milliseconds(1), .patience = absl::Seconds(30)};
const std::vector<WatchedGpu> kBoth = {{"cuda:0", FakeNvml::kFirstBus},
                                       {"cuda:1", FakeNvml::kSecondBus}};
const std::vector<WatchedGpu> kFirst = {kBoth[0]};

TEST(NvmlApiTest, MissingLibraryIsNamedWithItsReason) {
  const absl::Status status = Open("libwarpcall_no_such_library.so.1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("could not load libwarpcall_no_such_library.so.1: "),
                    HasSubstr("cannot open shared object file"), HasSubstr("Xid")));
}

TEST(NvmlApiTest, LibraryWithoutTheFunctionsIsRefused) {
  EXPECT_THAT(std::string(Open("libm.so.6").status().message()),
              StartsWith("libm.so.6 has no function nvmlInit_v2: "));
}

class NvmlMonitorTest : public ::testing::Test {
 protected:
  FakeNvml nvml_;
};

TEST_F(NvmlMonitorTest, ReadingsAreInBaseUnitsAndOfTheirOwnGpu) {
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.gpus[0].uuid = "GPU-6f1d8c3e-0000-1111-2222-333344445555";
    nvml_.gpus[1].uuid_result = kNotSupported;
    nvml_.gpus[0].power_milliwatts = 123400;
    nvml_.gpus[0].temperature_celsius = 45;
    nvml_.gpus[0].sm_clock_mhz = 1755;
    nvml_.gpus[1].throttle_reasons = kThrottleSwPowerCap | 1;  // and an idle GPU's
    nvml_.gpus[0].gpm_percent = {{kGpmSmUtilisation, 75.0},
                                 {kGpmSmOccupancy, 50.0},
                                 {kGpmDramBandwidthUtilisation, 12.5},
                                 {kGpmAnyTensorUtilisation, 0.0}};
    nvml_.gpus[1].power_milliwatts = 1000;
    nvml_.gpus[1].gpm_percent = {{kGpmSmUtilisation, 100.0000001}};
  }
  const Monitor monitor(nvml_.api(), kBoth, kFast);
  nvml_.AwaitPoll();
  const std::vector<GpuReading> readings = monitor.Readings();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_EQ(readings[0].device, "cuda:0");
  EXPECT_EQ(readings[0].uuid, "GPU-6f1d8c3e-0000-1111-2222-333344445555");
  EXPECT_EQ(readings[1].uuid, "");
  EXPECT_THAT(readings[0].power_watts, Optional(DoubleEq(123.4)));
  EXPECT_THAT(readings[0].temperature_celsius, Optional(45));
  EXPECT_THAT(readings[0].sm_clock_mhz, Optional(1755));
  EXPECT_EQ(readings[0].throttled.size(), 6u);
  EXPECT_FALSE(readings[0].throttled.at("power cap"));
  EXPECT_TRUE(readings[1].throttled.at("power cap"));
  EXPECT_FALSE(readings[1].throttled.at("power brake"));
  EXPECT_THAT(readings[0].sm_active_ratio, Optional(0.75));
  EXPECT_THAT(readings[0].sm_occupancy_ratio, Optional(0.5));
  EXPECT_THAT(readings[0].dram_bandwidth_ratio, Optional(0.125));
  EXPECT_THAT(readings[0].tensor_active_ratio, Optional(0));
  EXPECT_EQ(readings[1].device, "cuda:1");
  EXPECT_THAT(readings[1].power_watts, Optional(1));
  EXPECT_THAT(readings[1].sm_active_ratio, Optional(1)) << "rounding must not exceed a ratio's 1";
}

TEST_F(NvmlMonitorTest, RatiosAreBetweenNeighbouringSamples) {
  const Monitor monitor(nvml_.api(), kFirst, kFast);
  nvml_.AwaitPoll();
  absl::MutexLock lock(&nvml_.mutex);
  EXPECT_THAT(nvml_.compared_older, Gt(0));
  EXPECT_EQ(nvml_.compared_newer, nvml_.compared_older + 1);
}

TEST_F(NvmlMonitorTest, UnsupportedIsAbsentNotZeroAndNotAskedAgain) {
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.gpus[1].power_result = kNotSupported;
    nvml_.gpus[1].has_gpm = false;
    nvml_.gpus[0].gpm_results[kGpmSmOccupancy] = kNotSupported;
    nvml_.gpus[0].gpm_percent[kGpmSmUtilisation] = std::numeric_limits<double>::quiet_NaN();
  }
  const Monitor monitor(nvml_.api(), kBoth, kFast);
  nvml_.AwaitPoll();
  nvml_.AwaitPoll();
  const std::vector<GpuReading> readings = monitor.Readings();
  EXPECT_EQ(readings[0].sm_occupancy_ratio, std::nullopt);
  EXPECT_EQ(readings[0].sm_active_ratio, std::nullopt) << "NVML's NaN is no value";
  EXPECT_TRUE(readings[0].dram_bandwidth_ratio.has_value());
  EXPECT_EQ(readings[1].power_watts, std::nullopt);
  EXPECT_EQ(readings[1].sm_active_ratio, std::nullopt);
  EXPECT_TRUE(readings[1].temperature_celsius.has_value());
  absl::MutexLock lock(&nvml_.mutex);
  EXPECT_EQ(nvml_.power_calls[1], 1);
}

TEST_F(NvmlMonitorTest, OldDriversHaveNoRatiosAndNoXidErrors) {
  Api api = nvml_.api();
  api.GpmSampleGet = nullptr;
  api.EventSetWait = nullptr;
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.gpus[0].power_milliwatts = 5000;
    nvml_.events.push_back(nvml_.Xid(0, 31));
  }
  const Monitor monitor(api, kFirst, kFast);
  nvml_.AwaitPoll();
  EXPECT_THAT(monitor.Readings()[0].power_watts, Optional(5));
  EXPECT_EQ(monitor.Readings()[0].sm_active_ratio, std::nullopt);
  EXPECT_THAT(monitor.Readings()[0].xid_errors, IsEmpty());
}

TEST_F(NvmlMonitorTest, AFailureThatPassesLeavesAGapOnly) {
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.gpus[0].power_milliwatts = 7000;
    nvml_.gpus[0].power_result = kGpuIsLost;
  }
  const Monitor monitor(nvml_.api(), kFirst, kFast);
  nvml_.AwaitPoll();
  EXPECT_EQ(monitor.Readings()[0].power_watts, std::nullopt);
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.gpus[0].power_result = kSuccess;
  }
  nvml_.AwaitPoll();
  EXPECT_THAT(monitor.Readings()[0].power_watts, Optional(7));
}

TEST_F(NvmlMonitorTest, XidErrorsAreCountedByNumberAndGpu) {
  const Monitor monitor(nvml_.api(), kBoth, kFast);
  nvml_.AwaitPoll();
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.events = {nvml_.Xid(0, 31), nvml_.Xid(1, 79), nvml_.Xid(0, 31), nvml_.Xid(0, 13)};
    nvml_.events.push_back({nvml_.events[0].device, 1, 99, 0, 0});  // an event of another kind
  }
  nvml_.AwaitPoll();
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.events = {nvml_.Xid(1, 79)};
  }
  nvml_.AwaitPoll();
  EXPECT_THAT(monitor.Readings()[0].xid_errors, ElementsAre(Pair(13, 1), Pair(31, 2)));
  EXPECT_THAT(monitor.Readings()[1].xid_errors, ElementsAre(Pair(79, 2)));
}

TEST_F(NvmlMonitorTest, AGpuThatNvmlDoesNotKnowHasNoValues) {
  const Monitor monitor(nvml_.api(), {{"cuda:0", "0000:FF:00.0"}, kBoth[0]}, kFast);
  nvml_.AwaitPoll();
  EXPECT_EQ(monitor.Readings()[0].device, "cuda:0");
  EXPECT_EQ(monitor.Readings()[0].power_watts, std::nullopt);
  EXPECT_TRUE(monitor.Readings()[1].power_watts.has_value());
}

TEST_F(NvmlMonitorTest, ADriverThatDoesNotStartLeavesReadingsWithoutValues) {
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.init_result = 9;  // NVML_ERROR_DRIVER_NOT_LOADED
  }
  {
    const Monitor monitor(nvml_.api(), kFirst, kFast);
    ASSERT_EQ(monitor.Readings().size(), 1u);
    EXPECT_EQ(monitor.Readings()[0].device, "cuda:0");
    EXPECT_EQ(monitor.Readings()[0].power_watts, std::nullopt);
  }
  absl::MutexLock lock(&nvml_.mutex);
  EXPECT_EQ(nvml_.polls, 0);
}

TEST_F(NvmlMonitorTest, AllIsGivenBackAtTheEnd) {
  {
    const Monitor monitor(nvml_.api(), kBoth, kFast);
    nvml_.AwaitPoll();
    absl::MutexLock lock(&nvml_.mutex);
    EXPECT_EQ(nvml_.samples_alive, 4);
    EXPECT_EQ(nvml_.sets_alive, 1);
    EXPECT_EQ(nvml_.sessions, 1);
  }
  absl::MutexLock lock(&nvml_.mutex);
  EXPECT_EQ(nvml_.samples_alive, 0);
  EXPECT_EQ(nvml_.sets_alive, 0);
  EXPECT_EQ(nvml_.sessions, 0);
}

TEST_F(NvmlMonitorTest, ACallThatHangsHoldsUpNeitherReadingsNorTheEnd) {
  absl::Notification release;
  {
    absl::MutexLock lock(&nvml_.mutex);
    nvml_.hang = &release;
  }
  auto monitor = std::make_unique<Monitor>(
      nvml_.api(), kFirst,
      MonitorOptions{.period = absl::Milliseconds(1), .patience = absl::Milliseconds(20)});
  {
    absl::MutexLock lock(&nvml_.mutex);
    while (nvml_.polls == 0) nvml_.changed.Wait(&nvml_.mutex);
  }
  EXPECT_EQ(monitor->Readings()[0].power_watts, std::nullopt);
  const absl::Time before = absl::Now();
  monitor.reset();
  EXPECT_GT(absl::Now() - before, absl::Milliseconds(19));
  // The thread left behind ends what it began, once it can.
  release.Notify();
  absl::MutexLock lock(&nvml_.mutex);
  while (nvml_.sessions != 0) nvml_.changed.Wait(&nvml_.mutex);
  EXPECT_EQ(nvml_.samples_alive, 0);
}

}  // namespace
}  // namespace warpcall::nvml
