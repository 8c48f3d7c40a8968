// NVML's figures for a GPU at work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/runtime/cuda/nvml_monitor.h"
#include "tests/server/runtime/gpu_fixture.h"

namespace warpcall::testing {
namespace {

using ::testing::AllOf;
using ::testing::Gt;
using ::testing::Le;
using ::testing::Lt;
using ::testing::Optional;

std::string Text(const std::optional<double>& value) {
  return value.has_value() ? absl::StrCat(*value) : "absent";
}

void PrintReading(const char* when, const GpuReading& reading) {
  std::printf(
      "  %s: %s sm_active %s sm_occupancy %s dram %s tensor %s power %s W temperature %s C, %zu "
      "kinds of Xid errors\n",
      when, reading.device.c_str(), Text(reading.sm_active_ratio).c_str(),
      Text(reading.sm_occupancy_ratio).c_str(), Text(reading.dram_bandwidth_ratio).c_str(),
      Text(reading.tensor_active_ratio).c_str(), Text(reading.power_watts).c_str(),
      Text(reading.temperature_celsius).c_str(), reading.xid_errors.size());
  std::fflush(stdout);
}

class GpuMonitorTest : public GpuTest {};

TEST_F(GpuMonitorTest, AGpuAtWorkIsSeenAtWork) {
  const std::string& bus = device_->properties().pci_bus_id;
  EXPECT_THAT(bus, ::testing::MatchesRegex("[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\\.0"));
  const auto api = nvml::Open(nvml::kFile);
  ASSERT_TRUE(api.ok()) << api.status();
  const auto row =
      CreateRow({"matmul", "mma_tiled", DataType::kBFloat16, {{8192, 8192}, {8192, 8192}}});
  ASSERT_NE(row, nullptr);
  const nvml::Monitor monitor(*api, {{device_->properties().name, bus}});
  // The kernels are the wait: ratios are between two samples, a second apart, both under load.
  GpuReading reading;
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + absl::Seconds(4)) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(row->Launch().ok());
    ASSERT_TRUE(row->Synchronize().ok());
    reading = monitor.Readings().at(0);
  }
  PrintReading("under load", reading);
  EXPECT_EQ(reading.device, "cuda:0");
  EXPECT_THAT(reading.power_watts, Optional(AllOf(Gt(50), Lt(2000))));
  EXPECT_THAT(reading.temperature_celsius, Optional(AllOf(Gt(10), Lt(110))));
  if (device_->properties().architecture < 90) return;
  EXPECT_THAT(reading.sm_active_ratio, Optional(AllOf(Gt(0.5), Le(1))));
  EXPECT_THAT(reading.sm_occupancy_ratio, Optional(AllOf(Gt(0.05), Le(1))));
  EXPECT_THAT(reading.dram_bandwidth_ratio, Optional(AllOf(Gt(0.001), Le(1))));
  EXPECT_THAT(reading.tensor_active_ratio, Optional(AllOf(Gt(0.05), Le(1))));
}

TEST_F(GpuMonitorTest, AWrongBusIdHasNoValues) {
  const auto api = nvml::Open(nvml::kFile);
  ASSERT_TRUE(api.ok()) << api.status();
  const nvml::Monitor monitor(*api, {{"cuda:0", "FFFF:FF:1F.7"}});
  const GpuReading reading = monitor.Readings().at(0);
  PrintReading("no such GPU", reading);
  EXPECT_EQ(reading.power_watts, std::nullopt);
  EXPECT_EQ(reading.sm_active_ratio, std::nullopt);
}

}  // namespace
}  // namespace warpcall::testing
