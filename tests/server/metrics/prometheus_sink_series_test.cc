// Which series there are before anything was recorded: names and labels are a contract with
// dashboards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/metrics/metrics_contract.h"
#include "tests/server/metrics/sink_fixture.h"

namespace warpcall::testing {
namespace {

using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;

constexpr const char* kPairs[] = {
    R"(implementation="tiled",kernel="alpha")", R"(implementation="plain",kernel="alpha")",
    R"(implementation="plain",kernel="beta")",  R"(implementation="",kernel="alpha")",
    R"(implementation="",kernel="beta")",       R"(implementation="",kernel="")",
};

// The series of `name` in the order that Samples keeps them.
std::set<std::string> SeriesOf(const Samples& samples, const std::string& name) {
  std::set<std::string> series;
  for (const auto& [key, value] : samples) {
    if (key == name || absl::StartsWith(key, name + "{")) series.insert(key);
  }
  return series;
}

class SeriesTest : public ::testing::Test {
 protected:
  const PrometheusSink sink_{MadeUpRegistry(), SinkOptions()};
  const MetricsText text_ = ParseMetricsText(sink_.Scrape());
};

TEST_F(SeriesTest, RequestsCoverEveryPairAndCode) {
  std::set<std::string> expected;
  for (const char* pair : kPairs) {
    for (const char* code :
         {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED",
          "DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE", "INTERNAL"}) {
      expected.insert(absl::StrCat("warpcall_requests_total{code=\"", code, "\",", pair, "}"));
    }
  }
  EXPECT_THAT(SeriesOf(text_.samples, "warpcall_requests_total"),
              UnorderedElementsAreArray(expected));
}

TEST(UnavailableRowsTest, AreOneAndAllOthersZero) {
  Registry registry = MadeUpRegistry();
  registry.SetUnavailable(0, {Unavailability::Cause::kDriver, "no driver"});
  registry.SetUnavailable(2, {Unavailability::Cause::kSelfTest, "failed its self-test"});
  const Samples samples = Scrape(PrometheusSink(registry, SinkOptions()));
  const auto of = [&](const char* kind, const char* row, const char* reason) {
    return samples.at(absl::StrCat("warpcall_rows_unavailable{device_kind=\"", kind, "\",", row,
                                   ",reason=\"", reason, "\"}"));
  };
  EXPECT_EQ(of("cuda", R"(implementation="tiled",kernel="alpha")", "driver"), 1);
  EXPECT_EQ(of("cpu", R"(implementation="plain",kernel="alpha")", "self_test"), 0);
  EXPECT_EQ(of("cpu", R"(implementation="plain",kernel="beta")", "self_test"), 1);
  EXPECT_EQ(SeriesOf(samples, "warpcall_rows_unavailable").size(), 3u);
}

TEST_F(SeriesTest, DurationsCoverEveryPairPhaseAndRun) {
  std::set<std::string> requests;
  for (const char* pair : kPairs) {
    requests.insert(absl::StrCat("warpcall_request_duration_seconds_count{", pair, "}"));
  }
  EXPECT_THAT(SeriesOf(text_.samples, "warpcall_request_duration_seconds_count"),
              UnorderedElementsAreArray(requests));
  std::set<std::string> phases;
  for (const char* kernel : {"alpha", "beta"}) {
    for (const char* phase : {"queue", "copy_in", "h2d", "kernel", "d2h"}) {
      phases.insert(absl::StrCat("warpcall_phase_duration_seconds_count{kernel=\"", kernel,
                                 "\",phase=\"", phase, "\"}"));
    }
  }
  EXPECT_THAT(SeriesOf(text_.samples, "warpcall_phase_duration_seconds_count"),
              UnorderedElementsAreArray(phases));
  const std::string name = "warpcall_kernel_duration_seconds_count";
  EXPECT_THAT(
      SeriesOf(text_.samples, name),
      UnorderedElementsAreArray({
          name + R"({data_type="float32",device="cuda:0",implementation="tiled",kernel="alpha"})",
          name + R"({data_type="bfloat16",device="cuda:0",implementation="tiled",kernel="alpha"})",
          name + R"({data_type="float32",device="cpu",implementation="plain",kernel="alpha"})",
          name + R"({data_type="float16",device="cpu",implementation="plain",kernel="alpha"})",
          name + R"({data_type="bfloat16",device="cpu",implementation="plain",kernel="alpha"})",
          name + R"({data_type="float32",device="cpu",implementation="plain",kernel="beta"})",
      }));
}

TEST_F(SeriesTest, WorkIsCountedPerRowAndDevice) {
  for (const std::string name : {"warpcall_kernel_flops_total", "warpcall_kernel_bytes_total"}) {
    EXPECT_THAT(SeriesOf(text_.samples, name),
                UnorderedElementsAreArray({
                    name + R"({device="cuda:0",implementation="tiled",kernel="alpha"})",
                    name + R"({device="cpu",implementation="plain",kernel="alpha"})",
                    name + R"({device="cpu",implementation="plain",kernel="beta"})",
                }));
  }
}

TEST_F(SeriesTest, LaunchShapesAreShownForRowsThatHaveThem) {
  const std::string row = R"(implementation="tiled",kernel="alpha"})";
  const std::string tiled = R"({device="cuda:0",implementation="tiled",kernel="alpha",kind=)";
  EXPECT_THAT(SeriesOf(text_.samples, "warpcall_kernel_occupancy_ratio"),
              UnorderedElementsAreArray({
                  "warpcall_kernel_occupancy_ratio" + tiled + "\"theoretical\"}",
                  "warpcall_kernel_occupancy_ratio" + tiled + "\"achieved\"}",
              }));
  for (const std::string name :
       {"warpcall_kernel_waves", "warpcall_kernel_wave_efficiency_ratio"}) {
    EXPECT_THAT(SeriesOf(text_.samples, name),
                UnorderedElementsAreArray({name + "{device=\"cuda:0\"," + row}));
  }
}

TEST_F(SeriesTest, WithoutAGpuThereAreNoSeriesOfGpuRuns) {
  PrometheusSink::Options options = SinkOptions();
  options.devices.pop_back();
  const Samples samples = Scrape(PrometheusSink(MadeUpRegistry(), std::move(options)));
  EXPECT_EQ(SeriesOf(samples, "warpcall_kernel_flops_total").size(), 2u);
  for (const auto& [series, value] : samples) {
    EXPECT_FALSE(absl::StrContains(series, "cuda:0")) << series;
    EXPECT_FALSE(absl::StrContains(series, "_waves")) << series;
  }
}

TEST_F(SeriesTest, RejectionsAndCopiesAndDevices) {
  const Samples& samples = text_.samples;
  for (const char* reason : {"message_bytes", "queue_requests", "queue_bytes", "queue_work",
                             "staging_bytes", "device_memory", "deadline", "deadline_unmeetable",
                             "draining", "device_lost", "run_time"}) {
    EXPECT_EQ(samples.count(absl::StrCat("warpcall_rejected_total{reason=\"", reason, "\"}")), 1u);
  }
  EXPECT_EQ(SeriesOf(samples, "warpcall_rejected_total").size(), 11u);
  EXPECT_THAT(SeriesOf(samples, "warpcall_host_copy_bytes_total"),
              UnorderedElementsAreArray({R"(warpcall_host_copy_bytes_total{where="copy_in"})",
                                         R"(warpcall_host_copy_bytes_total{where="copy_out"})"}));
  for (const std::string name :
       {"warpcall_queue_depth", "warpcall_queue_bytes", "warpcall_queue_oldest_age_seconds",
        "warpcall_device_busy_seconds_total",
        "warpcall_device_bandwidth_ceiling_bytes_per_second"}) {
    EXPECT_THAT(
        SeriesOf(samples, name),
        UnorderedElementsAreArray({name + R"({device="cpu"})", name + R"({device="cuda:0"})"}));
  }
  for (const std::string state : {"total", "used"}) {
    EXPECT_THAT(
        SeriesOf(samples, "warpcall_staging_bytes"),
        IsSupersetOf({R"(warpcall_staging_bytes{device="cpu",state=")" + state + "\"}",
                      R"(warpcall_staging_bytes{device="cuda:0",state=")" + state + "\"}"}));
  }
  for (const std::string state : {"total", "used", "reserved"}) {
    const std::string name = "warpcall_device_memory_bytes";
    EXPECT_THAT(SeriesOf(samples, name),
                IsSupersetOf({name + R"({device="cpu",state=")" + state + "\"}",
                              name + R"({device="cuda:0",state=")" + state + "\"}"}));
  }
  EXPECT_EQ(SeriesOf(samples, "warpcall_staging_bytes").size(), 4u);
  EXPECT_EQ(SeriesOf(samples, "warpcall_device_memory_bytes").size(), 6u);
}

TEST_F(SeriesTest, ErrorsOfDevicesHaveSeriesByCodeAndNoneWithoutCodes) {
  EXPECT_TRUE(SeriesOf(text_.samples, "warpcall_cuda_errors_total").empty());
  PrometheusSink::Options options = SinkOptions();
  options.device_errors = [] {
    return std::vector<DeviceErrorCount>{{"cudaErrorAssert", 0}, {"cudaErrorIllegalAddress", 3}};
  };
  const Samples samples = Scrape(PrometheusSink(MadeUpRegistry(), std::move(options)));
  EXPECT_EQ(samples.at(R"(warpcall_cuda_errors_total{code="cudaErrorAssert"})"), 0);
  EXPECT_EQ(samples.at(R"(warpcall_cuda_errors_total{code="cudaErrorIllegalAddress"})"), 3);
}

TEST_F(SeriesTest, AGpuThatSaysAllOfItselfHasEveryFamilyOfTheContract) {
  PrometheusSink::Options options = SinkOptions();
  options.device_errors = [] { return std::vector<DeviceErrorCount>{{"cudaErrorAssert", 0}}; };
  options.gpu_readings = [] {
    return std::vector<GpuReading>{{"cuda:0", 0.1, 0.2, 0.3, 0.4, 500, 60, {{79, 0}}}};
  };
  const PrometheusSink sink(MadeUpRegistry(), std::move(options));
  ExpectContract(ParseMetricsText(sink.Scrape()), /*gpu=*/true);
}

TEST_F(SeriesTest, WhatAGpuSaysOfItselfHasASeriesAndWhatItDoesNotSayHasNone) {
  for (const auto& [series, value] : text_.samples)
    EXPECT_FALSE(absl::StartsWith(series, "warpcall_gpu_")) << series;
  PrometheusSink::Options options = SinkOptions();
  options.gpu_readings = [] {
    GpuReading first, second;
    first.device = "cuda:0";
    first.sm_active_ratio = 0.5;
    first.sm_occupancy_ratio = 0.25;
    first.dram_bandwidth_ratio = 0.75;
    first.tensor_active_ratio = 0;
    first.power_watts = 312.5;
    first.xid_errors = {{31, 2}, {79, 0}};
    second.device = "cuda:1";
    second.temperature_celsius = 61;
    second.xid_errors = {{79, 1}};
    return std::vector<GpuReading>{first, second};
  };
  const PrometheusSink sink(MadeUpRegistry(), std::move(options));
  const MetricsText text = ParseMetricsText(sink.Scrape());
  Samples gpu;
  for (const auto& [series, value] : text.samples)
    if (absl::StartsWith(series, "warpcall_gpu_")) gpu[series] = value;
  EXPECT_EQ(gpu, (Samples{{R"(warpcall_gpu_sm_active_ratio{device="cuda:0"})", 0.5},
                          {R"(warpcall_gpu_sm_occupancy_ratio{device="cuda:0"})", 0.25},
                          {R"(warpcall_gpu_dram_bandwidth_ratio{device="cuda:0"})", 0.75},
                          {R"(warpcall_gpu_tensor_active_ratio{device="cuda:0"})", 0},
                          {R"(warpcall_gpu_power_watts{device="cuda:0"})", 312.5},
                          {R"(warpcall_gpu_temperature_celsius{device="cuda:1"})", 61},
                          {R"(warpcall_gpu_xid_errors_total{device="cuda:0",xid="31"})", 2},
                          {R"(warpcall_gpu_xid_errors_total{device="cuda:0",xid="79"})", 0},
                          {R"(warpcall_gpu_xid_errors_total{device="cuda:1",xid="79"})", 1}}));
  EXPECT_EQ(text.types.at("warpcall_gpu_xid_errors_total"), "counter");
  for (const char* name : {"sm_active_ratio", "sm_occupancy_ratio", "dram_bandwidth_ratio",
                           "tensor_active_ratio", "power_watts", "temperature_celsius"})
    EXPECT_EQ(text.types.at(absl::StrCat("warpcall_gpu_", name)), "gauge") << name;
}

TEST_F(SeriesTest, ALostDeviceIsNotHealthy) {
  std::vector<DeviceSnapshot> snapshots(2);
  snapshots[kCudaDevice].healthy = false;
  snapshots[kCudaDevice].restarts = 3;
  const Samples samples = Scrape(PrometheusSink(MadeUpRegistry(), SinkOptions(snapshots)));
  EXPECT_EQ(samples.at(R"(warpcall_device_healthy{device="cpu"})"), 1);
  EXPECT_EQ(samples.at(R"(warpcall_device_healthy{device="cuda:0"})"), 0);
  EXPECT_EQ(samples.at(R"(warpcall_worker_restarts_total{device="cuda:0"})"), 3);
}

TEST_F(SeriesTest, EverythingStartsAtZeroButWhatDescribesTheProcess) {
  int zeros = 0;
  for (const auto& [series, value] : text_.samples) {
    if (absl::StartsWith(series, "process_")) continue;
    const bool is_one = absl::StartsWith(series, "warpcall_build_info") ||
                        absl::StartsWith(series, "warpcall_device_healthy");
    EXPECT_EQ(value, is_one ? 1 : 0) << series;
    zeros += value == 0;
  }
  EXPECT_GT(zeros, 500);
  EXPECT_EQ(
      text_.samples.count(R"(warpcall_build_info{compiler="gcc 12",cuda="13.0",version="1.2.3"})"),
      1u);
}

}  // namespace
}  // namespace warpcall::testing
