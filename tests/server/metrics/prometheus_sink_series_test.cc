// Which series there are before anything was recorded: names and labels are a contract with
// dashboards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/metrics/metrics_contract.h"
#include "tests/server/metrics/sink_fixture.h"

namespace warpcall::testing {
namespace {

using ::testing::UnorderedElementsAreArray;

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

using Labels = std::vector<std::string>;

// `values` of one label.
Labels Of(const std::string& label, const Labels& values) {
  Labels labels;
  for (const std::string& value : values) labels.push_back(absl::StrCat(label, "=\"", value, "\""));
  return labels;
}

// Each of the first with each of the second.
Labels Each(const Labels& first, const Labels& second) {
  Labels labels;
  for (const std::string& one : first)
    for (const std::string& other : second) labels.push_back(absl::StrCat(one, ",", other));
  return labels;
}

TEST_F(SeriesTest, AreThereFromTheBeginning) {
  const std::string tiled = R"(implementation="cuda",kernel="alpha")";
  const std::string plain = R"(implementation="cpu",kernel="alpha")";
  const std::string beta = R"(implementation="cpu",kernel="beta")";
  const Labels pairs = {tiled,
                        plain,
                        beta,
                        R"(implementation="",kernel="alpha")",
                        R"(implementation="",kernel="beta")",
                        R"(implementation="",kernel="")"};
  const Labels codes = Of("code", {"OK", "UNAVAILABLE", "INTERNAL"});
  const Labels methods = Of("method", {"benchmark", "profile", "describe", "tune", "push"});
  const Labels kernels = Of("kernel", {"alpha", "beta"});
  const Labels reasons =
      Of("reason", {"message_bytes", "queue_requests", "queue_bytes", "queue_work", "staging_bytes",
                    "device_memory", "deadline", "deadline_unmeetable", "draining", "device_lost",
                    "run_time", "quota", "inspect_queue", "connections"});
  const Labels devices = Of("device", {"cpu", "cuda:0"});
  const Labels tiled_runs = {"device=\"cuda:0\"," + tiled};
  const Labels runs = {tiled_runs[0], "device=\"cpu\"," + plain, "device=\"cpu\"," + beta};
  const std::map<std::string, Labels> expected = {
      {"requests_total", Each(codes, pairs)},
      {"request_duration_seconds_count", {}},
      {"phase_duration_seconds_count", {}},
      {"inspections_total", Each(Of("code", {"OK"}), methods)},
      {"inspection_cpu_seconds_total", Each(kernels, methods)},
      {"inspection_device_seconds_total", Each(kernels, methods)},
      {"kernel_duration_seconds_count", {}},
      {"kernel_flops_total", runs},
      {"kernel_bytes_total", runs},
      {"auto_choices_total", {}},
      {"reference_served_total", kernels},
      {"tuning_cache_errors_total", Of("operation", {"read", "write"})},
      {"kernel_occupancy_ratio", {}},
      {"kernel_waves", {}},
      {"kernel_wave_efficiency_ratio", {}},
      {"rejected_total", reasons},
      {"auth_refusals_total", {"reason=\"method\""}},
      {"reload_failures_total", {"flag=\"policy_file\""}},
      {"host_copy_bytes_total", Of("where", {"copy_in", "copy_out"})},
      {"queue_depth", devices},
      {"queue_bytes", devices},
      {"queue_work_seconds", devices},
      {"queue_oldest_age_seconds", devices},
      {"device_busy_seconds_total", devices},
      {"device_bandwidth_ceiling_bytes_per_second", devices},
      {"device_bandwidth_ceiling_noise_ratio", devices},
      {"staging_bytes", Each(devices, Of("state", {"total", "used"}))},
      {"device_memory_bytes", Each(devices, Of("state", {"total", "used", "reserved"}))},
  };
  for (const auto& [name, labels] : expected) {
    Labels series;
    for (const std::string& one : labels)
      series.push_back(absl::StrCat("warpcall_", name, "{", one, "}"));
    EXPECT_THAT(SeriesOf(text_.samples, "warpcall_" + name), UnorderedElementsAreArray(series));
  }
}

TEST(UnavailableRowsTest, AreOneAndAllOthersZero) {
  Registry registry = MadeUpRegistry();
  registry.SetAvailability(0, {Unavailability::Cause::kDriver, "no driver"});
  registry.SetAvailability(2, {Unavailability::Cause::kSelfTest, "failed its self-test"});
  const Samples samples = Scrape(PrometheusSink(registry, SinkOptions()));
  const auto of = [&](const char* kernel, const char* family, const char* reason,
                      const char* variant) {
    return samples.at(absl::StrCat("warpcall_rows_unavailable{device_kind=\"", family,
                                   "\",implementation=\"", family, "\",kernel=\"", kernel,
                                   "\",reason=\"", reason, "\",variant=\"", variant, "\"}"));
  };
  EXPECT_EQ(of("alpha", "cuda", "driver", "tiled"), 1);
  EXPECT_EQ(of("alpha", "cpu", "self_test", "plain"), 0);
  EXPECT_EQ(of("beta", "cpu", "self_test", "plain"), 1);
  EXPECT_EQ(SeriesOf(samples, "warpcall_rows_unavailable").size(), 3u);
}

TEST(UnavailableRowsTest, ChangeWhenRowsThatWereNotTriedAre) {
  Registry registry = MadeUpRegistry();
  registry.SetAvailability(0, {Unavailability::Cause::kNotTried, "not tried yet"});
  const PrometheusSink sink(registry, SinkOptions());
  const std::string row = "device_kind=\"cuda\",implementation=\"cuda\",kernel=\"alpha\"";
  EXPECT_EQ(Scrape(sink).at(absl::StrCat("warpcall_rows_unavailable{", row,
                                         ",reason=\"self_test\",variant=\"tiled\"}")),
            0);
  registry.SetAvailability(0, {Unavailability::Cause::kLibrary, "no library"});
  EXPECT_EQ(Scrape(sink).at(absl::StrCat("warpcall_rows_unavailable{", row,
                                         ",reason=\"library\",variant=\"tiled\"}")),
            1);
  EXPECT_EQ(SeriesOf(Scrape(sink), "warpcall_rows_unavailable").size(), 3u);
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
    return std::vector<GpuReading>{
        {"cuda:0", 0.1, 0.2, 0.3, 0.4, 500, 60, 1755, {{"power cap", false}}, {{79, 0}}, "GPU-1"}};
  };
  compiled::Counts counts;
  options.compile_counts = [&counts] { return counts; };
  PrometheusSink sink(MadeUpRegistry(), std::move(options));
  ExpectContract(ParseMetricsText(sink.Scrape()), {.gpu = true});
  RequestTrace trace = RunTrace(kAlpha, kAlphaTiled, kCudaDevice);
  trace.auto_choice = AutoChoice::kOrder;
  sink.Record(trace);
  sink.SetAchievedOccupancy(kAlphaTiled, kCudaDevice, 0.5);
  counts.compilations[0] = 1;
  ExpectContract(ParseMetricsText(sink.Scrape()), {.gpu = true, .runs = true});
}

TEST_F(SeriesTest, AppearWholeWithTheirFirstObservation) {
  PrometheusSink sink(MadeUpRegistry(), SinkOptions());
  RequestTrace trace = RunTrace(kAlpha, kAlphaPlain, kCpuDevice);
  trace.code = absl::StatusCode::kCancelled;
  trace.auto_choice = AutoChoice::kTuned;
  sink.Record(trace);
  sink.RecordInspection({.kind = Inspection::kTune, .code = absl::StatusCode::kNotFound});
  const std::string plain = R"(implementation="cpu",kernel="alpha")";
  Labels shown;
  for (const auto& [series, value] : Scrape(sink))
    if (text_.samples.count(series) == 0 && !absl::StrContains(series, "_bucket{"))
      shown.push_back(series);
  Labels expected = {
      absl::StrCat("warpcall_requests_total{code=\"CANCELLED\",", plain, "}"),
      absl::StrCat("warpcall_auto_choices_total{device=\"cpu\",", plain, ",why=\"tuned\"}"),
      R"(warpcall_inspections_total{code="NOT_FOUND",method="tune"})"};
  for (const char* const part : {"sum", "count"}) {
    expected.push_back(absl::StrCat("warpcall_request_duration_seconds_", part, "{", plain, "}"));
    expected.push_back(absl::StrCat("warpcall_kernel_duration_seconds_", part,
                                    "{data_type=\"float32\",device=\"cpu\",", plain, "}"));
    for (const char* const phase : {"queue", "copy_in", "h2d", "kernel", "d2h"})
      expected.push_back(absl::StrCat("warpcall_phase_duration_seconds_", part,
                                      "{kernel=\"alpha\",phase=\"", phase, "\"}"));
  }
  EXPECT_THAT(shown, UnorderedElementsAreArray(expected));
  // With every bucket.
  EXPECT_EQ(SeriesOf(Scrape(sink), "warpcall_phase_duration_seconds_bucket").size(),
            5u * kBucketCount);
}

TEST(UnavailableRowsTest, HaveNoCountsOfRequestsBeforeTheFirst) {
  Registry registry = MadeUpRegistry();
  registry.SetAvailability(kAlphaTiled, {Unavailability::Cause::kDriver, "no driver"});
  PrometheusSink sink(registry, SinkOptions());
  const auto counts = [&] { return SeriesOf(Scrape(sink), "warpcall_requests_total").size(); };
  EXPECT_EQ(counts(), 3u * 5);
  RequestTrace trace;
  trace.kernel = kAlpha;
  trace.row = kAlphaTiled;
  trace.code = absl::StatusCode::kUnavailable;
  sink.Record(trace);
  EXPECT_EQ(counts(), 3u * 5 + 1);
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
    first.uuid = "GPU-6f1d8c3e";
    first.xid_errors = {{31, 2}, {79, 0}};
    second.device = "cuda:1";
    second.temperature_celsius = 61;
    second.sm_clock_mhz = 1755;
    second.throttled = {{"power cap", true}, {"power brake", false}};
    second.xid_errors = {{79, 1}};
    return std::vector<GpuReading>{first, second};
  };
  const PrometheusSink sink(MadeUpRegistry(), std::move(options));
  Samples gpu;
  for (const auto& [series, value] : Scrape(sink))
    if (absl::StartsWith(series, "warpcall_gpu_")) gpu[series] = value;
  EXPECT_EQ(gpu, (Samples{{R"(warpcall_gpu_sm_active_ratio{device="cuda:0"})", 0.5},
                          {R"(warpcall_gpu_sm_occupancy_ratio{device="cuda:0"})", 0.25},
                          {R"(warpcall_gpu_dram_bandwidth_ratio{device="cuda:0"})", 0.75},
                          {R"(warpcall_gpu_tensor_active_ratio{device="cuda:0"})", 0},
                          {R"(warpcall_gpu_power_watts{device="cuda:0"})", 312.5},
                          {R"(warpcall_gpu_temperature_celsius{device="cuda:1"})", 61},
                          {R"(warpcall_gpu_sm_clock_mhz{device="cuda:1"})", 1755},
                          {R"(warpcall_gpu_throttled{device="cuda:1",reason="power cap"})", 1},
                          {R"(warpcall_gpu_throttled{device="cuda:1",reason="power brake"})", 0},
                          {R"(warpcall_gpu_info{UUID="GPU-6f1d8c3e",device="cuda:0"})", 1},
                          {R"(warpcall_gpu_xid_errors_total{device="cuda:0",xid="31"})", 2},
                          {R"(warpcall_gpu_xid_errors_total{device="cuda:0",xid="79"})", 0},
                          {R"(warpcall_gpu_xid_errors_total{device="cuda:1",xid="79"})", 1}}));
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

TEST_F(SeriesTest, WhatIsCompiledAtRunTimeIsToldWithItsCaches) {
  PrometheusSink::Options options = SinkOptions();
  options.compile_counts = [] {
    compiled::Counts counts;
    counts.fields = {1, 2, 3, 4, 5, 70'000'000};  // in the order of Counts::Field
    counts.compilations[BucketOf(20'000'000)] = 2;
    counts.compilations[BucketOf(40'000'000)] = 1;
    counts.compilations[kBucketCount - 1] = 4;
    return counts;
  };
  options.compile_cache_bytes = [] { return int64_t{6}; };
  const Samples samples = Scrape(PrometheusSink(MadeUpRegistry(), std::move(options)));
  const auto of = [&](const char* name, const char* cache) {
    return samples.at(absl::StrCat("warpcall_compile_cache_", name, "{cache=\"", cache, "\"}"));
  };
  EXPECT_EQ(of("hits_total", "memory"), 1);
  EXPECT_EQ(of("misses_total", "memory"), 2);
  EXPECT_EQ(of("hits_total", "disk"), 3);
  EXPECT_EQ(of("misses_total", "disk"), 4);
  EXPECT_EQ(of("bytes", "memory"), 5);
  EXPECT_EQ(of("bytes", "disk"), 6);
  EXPECT_EQ(samples.at("warpcall_compile_seconds_count"), 7);
  EXPECT_EQ(samples.at("warpcall_compile_seconds_sum"), 0.07);
  EXPECT_EQ(samples.at(R"(warpcall_compile_seconds_bucket{le="1e-06"})"), 0);
  EXPECT_EQ(samples.at(R"(warpcall_compile_seconds_bucket{le="0.016384"})"), 0);
  EXPECT_EQ(samples.at(R"(warpcall_compile_seconds_bucket{le="0.032768"})"), 2);
  EXPECT_EQ(samples.at(R"(warpcall_compile_seconds_bucket{le="0.065536"})"), 3);
  EXPECT_EQ(samples.at(R"(warpcall_compile_seconds_bucket{le="16.777216"})"), 3);
  EXPECT_EQ(samples.at(R"(warpcall_compile_seconds_bucket{le="+Inf"})"), 7);
}

TEST_F(SeriesTest, EverythingStartsAtZeroButWhatDescribesTheProcess) {
  int zeros = 0;
  for (const auto& [series, value] : text_.samples) {
    if (absl::StartsWith(series, "process_")) continue;
    const bool is_one = absl::StartsWith(series, "warpcall_build_info") ||
                        absl::StartsWith(series, "warpcall_device_healthy") ||
                        absl::StartsWith(series, "warpcall_device_bandwidth_ceiling_noise_ratio") ||
                        series == "warpcall_server_phase{phase=\"serving\"}";
    EXPECT_EQ(value, is_one ? 1 : 0) << series;
    zeros += value == 0;
  }
  EXPECT_GT(zeros, 60);
  EXPECT_EQ(
      text_.samples.count(R"(warpcall_build_info{compiler="gcc 12",cuda="13.0",version="1.2.3"})"),
      1u);
}

}  // namespace
}  // namespace warpcall::testing
