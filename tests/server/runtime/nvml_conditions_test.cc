#include "server/runtime/cuda/nvml_conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/runtime/fake_nvml.h"

namespace warpcall::nvml {
namespace {

using ::testing::ElementsAre;
using warpcall::testing::FakeNvml;

TEST(GpuConditionsTest, ReadsClocksAndWhatHoldsThemDown) {
  FakeNvml fake;
  {
    absl::MutexLock lock(&fake.mutex);
    FakeNvml::Gpu& gpu = fake.gpus[1];
    gpu.sm_clock_mhz = 1200;
    gpu.memory_clock_mhz = 3201;
    gpu.default_sm_clock_mhz = 1980;
    gpu.temperature_celsius = 71;
    gpu.power_milliwatts = 699'500;
    gpu.energy_millijoules = 12'345'678;
    gpu.throttle_reasons = 0x1 | 0x2 | kThrottleSwPowerCap | kThrottleHwThermal;
  }
  auto reader = GpuConditions::Open(fake.api(), FakeNvml::kSecondBus);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const DeviceConditions conditions = (*reader)->Read();
  EXPECT_EQ(conditions.sm_clock_mhz, 1200);
  EXPECT_EQ(conditions.memory_clock_mhz, 3201);
  EXPECT_EQ(conditions.default_sm_clock_mhz, 1980);
  EXPECT_EQ(conditions.temperature_celsius, 71);
  EXPECT_DOUBLE_EQ(conditions.power_watts, 699.5);
  EXPECT_DOUBLE_EQ(conditions.energy_joules, 12345.678);
  EXPECT_EQ(conditions.driver, "580.65.06");
  EXPECT_THAT(conditions.throttle_reasons, ElementsAre("power cap", "hardware thermal slowdown"));
  reader->reset();
  absl::MutexLock lock(&fake.mutex);
  EXPECT_EQ(fake.sessions, 0);
}

TEST(GpuConditionsTest, WhatADriverDoesNotTellIsNotThere) {
  FakeNvml fake;
  Api api = fake.api();
  api.DeviceGetClockInfo = nullptr;
  api.DeviceGetCurrentClocksThrottleReasons = nullptr;
  api.SystemGetDriverVersion = nullptr;
  const auto reader = GpuConditions::Open(api, FakeNvml::kFirstBus);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const DeviceConditions conditions = (*reader)->Read();
  EXPECT_EQ(conditions.sm_clock_mhz, 0);
  EXPECT_EQ(conditions.default_sm_clock_mhz, 0);
  EXPECT_TRUE(conditions.throttle_reasons.empty());
  EXPECT_EQ(conditions.driver, "");
}

TEST(GpuConditionsTest, AnUnknownGpuIsAnError) {
  FakeNvml fake;
  EXPECT_FALSE(GpuConditions::Open(fake.api(), "0000:77:00.0").ok());
  absl::MutexLock lock(&fake.mutex);
  EXPECT_EQ(fake.sessions, 0);
}

}  // namespace
}  // namespace warpcall::nvml
