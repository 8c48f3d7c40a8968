#include "server/metrics/prometheus_sink.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/server/metrics/sink_fixture.h"

namespace warpcall::testing {
namespace {

class PrometheusSinkTest : public ::testing::Test {
 protected:
  // The value of a series that must exist.
  double Value(const std::string& series) const {
    const Samples samples = Scrape(sink_);
    const auto found = samples.find(series);
    if (found == samples.end()) {
      ADD_FAILURE() << "no series " << series;
      return -1;
    }
    return found->second;
  }

  PrometheusSink sink_{MadeUpRegistry(), SinkOptions()};
};

// The line of the request's duration that has an exemplar; empty if none has.
std::string LineWithExemplar(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    if (absl::StartsWith(line, "warpcall_request_duration_seconds_bucket") &&
        absl::StrContains(line, " # {"))
      return std::string(line);
  return "";
}

TEST_F(PrometheusSinkTest, ABucketsExemplarIsTheLastTracedRequestThatItCounted) {
  RequestTrace trace = RunTrace(kAlpha, kAlphaTiled, kCpuDevice);
  trace.total_ns = 3'000;
  trace.trace_id.fill(0x11);
  sink_.Record(trace);
  trace.trace_id.fill(0x22);
  sink_.Record(trace);
  trace.trace_id = {};  // nobody traces it
  sink_.Record(trace);
  const std::string text = sink_.Scrape(MetricsFormat::kOpenMetrics);
  const std::string line = LineWithExemplar(text);
  EXPECT_TRUE(absl::StrContains(line,
                                "le=\"4e-06\"} 3 # {trace_id=\"22222222222222222222222222222222\"} "
                                "3e-06 "))
      << line;
  EXPECT_TRUE(absl::EndsWith(text, "\n# EOF\n"));
  EXPECT_TRUE(absl::StrContains(text, "\n# TYPE warpcall_requests counter\n"));
  EXPECT_TRUE(absl::StrContains(text, "\n# TYPE process_cpu_seconds counter\n"));
  EXPECT_FALSE(absl::StrContains(sink_.Scrape(), " # {"));
  EXPECT_FALSE(absl::StrContains(sink_.Scrape(), "EOF"));
}

TEST_F(PrometheusSinkTest, EveryCodeHasItsOwnSeries) {
  constexpr absl::StatusCode kCodes[] = {
      absl::StatusCode::kOk,          absl::StatusCode::kInvalidArgument,
      absl::StatusCode::kNotFound,    absl::StatusCode::kUnimplemented,
      absl::StatusCode::kCancelled,   absl::StatusCode::kResourceExhausted,
      absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded,
      absl::StatusCode::kInternal};
  int times = 0;
  for (const absl::StatusCode code : kCodes) {
    RequestTrace trace;
    trace.kernel = kBeta;
    trace.code = code;
    ++times;
    for (int i = 0; i < times; ++i) sink_.Record(trace);
  }
  const Samples samples = Scrape(sink_);
  times = 0;
  for (const absl::StatusCode code : kCodes) {
    EXPECT_EQ(
        samples.at(absl::StrCat("warpcall_requests_total{code=\"", absl::StatusCodeToString(code),
                                R"(",implementation="",kernel="beta"})")),
        ++times);
  }
  EXPECT_EQ(SumOf(samples, "warpcall_requests_total", {}), 45);
}

TEST_F(PrometheusSinkTest, ChoicesThatWereLeftToTheServerAreCountedByWhy) {
  RequestTrace trace;
  trace.kernel = kBeta;
  trace.row = kBetaPlain;
  trace.device = kCpuDevice;
  sink_.Record(trace);  // named
  trace.auto_choice = AutoChoice::kOrder;
  sink_.Record(trace);
  trace.auto_choice = AutoChoice::kTuned;
  for (int i = 0; i < 2; ++i) sink_.Record(trace);
  trace.row = -1;  // refused before a row was chosen
  sink_.Record(trace);
  const Samples samples = Scrape(sink_);
  const char* const run = R"({device="cpu",implementation="cpu",kernel="beta",why=")";
  const auto value = [&](const char* why) {
    return samples.at(absl::StrCat("warpcall_auto_choices_total", run, why, "\"}"));
  };
  EXPECT_EQ(value("order"), 1);
  EXPECT_EQ(value("tuned"), 2);
  EXPECT_EQ(SumOf(samples, "warpcall_auto_choices_total", {}), 3);
}

TEST(VariantsTest, CountTogetherAsTheirImplementation) {
  Registry registry;
  static const Op op = {"gamma", "", {"x"}, {}, nullptr, nullptr};
  Implementation one = MadeUpRegistry().rows()[kBetaPlain].implementation;
  Implementation other = one;
  other.name = "other";
  other.data_types = {DataType::kFloat16};
  registry.Add(op, {one, other});
  PrometheusSink sink(registry, SinkOptions());
  RequestTrace trace{.kernel = 0, .row = 0, .device = kCpuDevice, .ran = true};
  trace.data_type = DataType::kFloat32;
  trace.auto_choice = AutoChoice::kOrder;
  sink.Record(trace);
  trace.row = 1;
  trace.data_type = DataType::kFloat16;
  sink.Record(trace);
  const Samples samples = Scrape(sink);
  EXPECT_EQ(samples.at(R"(warpcall_requests_total{code="OK",implementation="cpu",kernel="gamma"})"),
            2);
  EXPECT_EQ(SumOf(samples, "warpcall_auto_choices_total", {R"(implementation="cpu")"}), 2);
  for (const char* const type : {"float32", "float16"})
    EXPECT_EQ(SumOf(samples, "warpcall_kernel_duration_seconds_count",
                    {R"(implementation="cpu")", absl::StrCat("data_type=\"", type, "\"")}),
              1);
}

TEST(ReferenceServedTest, CountsWhatTheReferenceComputedUnasked) {
  Registry registry;
  static const Op op = {"gamma", "", {"x"}, {}, nullptr, nullptr};
  Implementation fast = MadeUpRegistry().rows()[kBetaPlain].implementation;
  Implementation reference = fast;
  reference.name = "float64";
  reference.family = Family::kReference;
  registry.Add(op, {fast, reference});
  PrometheusSink sink(registry, SinkOptions());
  const auto count = [&] {
    return Scrape(sink).at(R"(warpcall_reference_served_total{kernel="gamma"})");
  };
  RequestTrace trace{.kernel = 0, .row = 1, .device = kCpuDevice, .ran = true};
  sink.Record(trace);  // named
  EXPECT_EQ(count(), 0);
  trace.auto_choice = AutoChoice::kOrder;
  sink.Record(trace);
  EXPECT_EQ(count(), 1);
  trace.auto_choice = AutoChoice::kTuned;
  sink.Record(trace);
  EXPECT_EQ(count(), 2);
  trace.ran = false;  // refused before it ran
  sink.Record(trace);
  trace.ran = true;
  trace.row = 0;
  sink.Record(trace);
  EXPECT_EQ(count(), 2);
}

TEST_F(PrometheusSinkTest, WhatInspectionsTakeIsCountedByMethodAndKernel) {
  sink_.RecordInspectionUse({.kind = Inspection::kProfile, .kernel = kBeta, .cpu_ns = 250'000'000});
  sink_.RecordInspectionUse({.kind = Inspection::kProfile, .kernel = kBeta, .cpu_ns = 500'000'000});
  sink_.RecordInspectionUse(
      {.kind = Inspection::kBenchmark, .kernel = kAlpha, .device_ns = 2'000'000'000});
  for (const int kernel : {-1, 2})
    sink_.RecordInspectionUse({.kernel = kernel, .cpu_ns = 1, .device_ns = 1});
  sink_.RecordInspectionUse({.kernel = kAlpha, .cpu_ns = -1, .device_ns = -1});
  const Samples samples = Scrape(sink_);
  const char* const cpu = "warpcall_inspection_cpu_seconds_total";
  const char* const device = "warpcall_inspection_device_seconds_total";
  EXPECT_EQ(samples.at(absl::StrCat(cpu, R"({kernel="beta",method="profile"})")), 0.75);
  EXPECT_EQ(samples.at(absl::StrCat(device, R"({kernel="alpha",method="benchmark"})")), 2);
  EXPECT_EQ(SumOf(samples, cpu, {}), 0.75);
  EXPECT_EQ(SumOf(samples, device, {}), 2);
}

TEST_F(PrometheusSinkTest, ACodeWithoutSeriesCountsAsInternal) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnknown, absl::StatusCode::kDataLoss, absl::StatusCode::kAborted,
        static_cast<absl::StatusCode>(99)}) {
    RequestTrace trace;
    trace.code = code;
    sink_.Record(trace);
  }
  EXPECT_EQ(Value(R"(warpcall_requests_total{code="INTERNAL",implementation="",kernel=""})"), 4);
}

TEST_F(PrometheusSinkTest, IdsOutOfRangeCountAsUnknown) {
  sink_.Record(RunTrace(2, 3, 2));
  sink_.Record(RunTrace(kAlpha, 3, kCpuDevice));
  sink_.Record(RunTrace(kAlpha, kAlphaPlain, 2));
  sink_.Record(RunTrace(-1, -1, -1));
  const Samples samples = Scrape(sink_);
  EXPECT_EQ(samples.at(R"(warpcall_requests_total{code="OK",implementation="",kernel=""})"), 2);
  EXPECT_EQ(samples.at(R"(warpcall_requests_total{code="OK",implementation="",kernel="alpha"})"),
            1);
  EXPECT_EQ(SumOf(samples, "warpcall_requests_total", {}), 4);
  EXPECT_EQ(SumOf(samples, "warpcall_kernel_duration_seconds_count", {}), 0);
}

TEST_F(PrometheusSinkTest, ARunOnADeviceOfAnotherKindIsNotAttributedToIt) {
  sink_.Record(RunTrace(kAlpha, kAlphaTiled, kCpuDevice));
  EXPECT_EQ(SumOf(Scrape(sink_), "warpcall_kernel_duration_seconds_count", {}), 0);
}

TEST_F(PrometheusSinkTest, BucketsAreCumulativeInSecondsAndTakeTheirBound) {
  for (const int64_t ns : {int64_t{0}, int64_t{1000}, int64_t{1001}, int64_t{2000}, int64_t{2001},
                           int64_t{1000} << 24, (int64_t{1000} << 24) + 1}) {
    RequestTrace trace;
    trace.total_ns = ns;
    sink_.Record(trace);
  }
  const auto bucket = [&](const char* bound) {
    return Value(absl::StrCat("warpcall_request_duration_seconds_bucket{implementation=\"\",",
                              "kernel=\"\",le=\"", bound, "\"}"));
  };
  EXPECT_EQ(bucket("1e-06"), 2);
  EXPECT_EQ(bucket("2e-06"), 4);
  EXPECT_EQ(bucket("4e-06"), 5);
  EXPECT_EQ(bucket("0.001024"), 5);
  EXPECT_EQ(bucket("8.388608"), 5);
  EXPECT_EQ(bucket("16.777216"), 6);
  EXPECT_EQ(bucket("+Inf"), 7);
  const std::string labels = R"({implementation="",kernel=""})";
  EXPECT_EQ(Value("warpcall_request_duration_seconds_count" + labels), 7);
  EXPECT_DOUBLE_EQ(Value("warpcall_request_duration_seconds_sum" + labels),
                   1e-9 * (1000 + 1001 + 2000 + 2001 + 2.0 * (int64_t{1000} << 24) + 1));
  EXPECT_EQ(SumOf(Scrape(sink_), "warpcall_request_duration_seconds_bucket", {"kernel=\"alpha\""}),
            0);
}

TEST_F(PrometheusSinkTest, ANegativeDurationCountsAsZero) {
  RequestTrace trace;
  trace.total_ns = -7;
  sink_.Record(trace);
  EXPECT_EQ(Value(R"(warpcall_request_duration_seconds_sum{implementation="",kernel=""})"), 0);
  EXPECT_EQ(Value(R"(warpcall_request_duration_seconds_count{implementation="",kernel=""})"), 1);
}

TEST_F(PrometheusSinkTest, ARunFillsItsPhasesAndItsDevice) {
  RequestTrace trace = RunTrace(kAlpha, kAlphaPlain, kCpuDevice);
  trace.data_type = DataType::kBFloat16;
  trace.queue_ns = 1'000;
  trace.copy_in_ns = 20'000;
  trace.h2d_ns = 300'000;
  trace.kernel_ns = 4'000'000;
  trace.d2h_ns = 50'000'000;
  trace.total_ns = 600'000'000;
  trace.work = {.bytes = 4096, .flops = 10240};
  trace.copy_in_bytes = 77;
  trace.copy_out_bytes = 5;
  sink_.Record(trace);
  sink_.Record(trace);
  const auto phase_sum = [&](const char* phase) {
    return Value(absl::StrCat("warpcall_phase_duration_seconds_sum{kernel=\"alpha\",phase=\"",
                              phase, "\"}"));
  };
  EXPECT_DOUBLE_EQ(phase_sum("queue"), 2e-6);
  EXPECT_DOUBLE_EQ(phase_sum("copy_in"), 4e-5);
  EXPECT_DOUBLE_EQ(phase_sum("h2d"), 6e-4);
  EXPECT_DOUBLE_EQ(phase_sum("kernel"), 8e-3);
  EXPECT_DOUBLE_EQ(phase_sum("d2h"), 0.1);
  const std::string run = R"(device="cpu",implementation="cpu",kernel="alpha"})";
  EXPECT_DOUBLE_EQ(Value(R"(warpcall_kernel_duration_seconds_sum{data_type="bfloat16",)" + run),
                   8e-3);
  EXPECT_EQ(Value(R"(warpcall_kernel_duration_seconds_count{data_type="bfloat16",)" + run), 2);
  EXPECT_EQ(SumOf(Scrape(sink_), "warpcall_kernel_duration_seconds_count", {}), 2);
  EXPECT_EQ(Value("warpcall_kernel_flops_total{" + run), 20480);
  EXPECT_EQ(Value("warpcall_kernel_bytes_total{" + run), 8192);
  EXPECT_EQ(SumOf(Scrape(sink_), "warpcall_kernel_flops_total", {}), 20480);
  EXPECT_EQ(Value(R"(warpcall_host_copy_bytes_total{where="copy_in"})"), 154);
  EXPECT_EQ(Value(R"(warpcall_host_copy_bytes_total{where="copy_out"})"), 10);
  EXPECT_DOUBLE_EQ(
      Value(R"(warpcall_request_duration_seconds_sum{implementation="cpu",kernel="alpha"})"), 1.2);
}

TEST_F(PrometheusSinkTest, WhatDidNotRunHasNoPhases) {
  RequestTrace trace = RunTrace(kAlpha, kAlphaPlain, kCpuDevice);
  trace.ran = false;
  trace.code = absl::StatusCode::kDeadlineExceeded;
  trace.reject_reason = RejectReason::kDeadline;
  trace.queue_ns = 1'000'000;
  sink_.Record(trace);
  const Samples samples = Scrape(sink_);
  EXPECT_EQ(SumOf(samples, "warpcall_phase_duration_seconds_count", {}), 0);
  EXPECT_EQ(SumOf(samples, "warpcall_kernel_duration_seconds_count", {}), 0);
  EXPECT_EQ(samples.at(R"(warpcall_rejected_total{reason="deadline"})"), 1);
  EXPECT_EQ(SumOf(samples, "warpcall_rejected_total", {}), 1);
}

TEST_F(PrometheusSinkTest, EveryReasonHasItsOwnSeries) {
  for (int reason = 1; reason < kRejectReasonCount; ++reason) {
    RequestTrace trace;
    trace.code = absl::StatusCode::kResourceExhausted;
    trace.reject_reason = static_cast<RejectReason>(reason);
    for (int i = 0; i < reason; ++i) sink_.Record(trace);
  }
  const Samples samples = Scrape(sink_);
  for (int reason = 1; reason < kRejectReasonCount; ++reason) {
    EXPECT_EQ(samples.at(absl::StrCat("warpcall_rejected_total{reason=\"",
                                      RejectReasonName(static_cast<RejectReason>(reason)), "\"}")),
              reason);
  }
}

TEST_F(PrometheusSinkTest, TheLastLaunchShapeIsShown) {
  RequestTrace trace = RunTrace(kAlpha, kAlphaTiled, kCudaDevice);
  trace.launch.theoretical_occupancy = 0.25;
  trace.launch.waves = 7.5;
  sink_.Record(trace);
  trace.launch.theoretical_occupancy = 0.75;
  trace.launch.waves = 1.5;
  sink_.Record(trace);
  const std::string run = R"({device="cuda:0",implementation="cuda",kernel="alpha")";
  EXPECT_EQ(Value("warpcall_kernel_occupancy_ratio" + run + R"(,kind="theoretical"})"), 0.75);
  EXPECT_EQ(Value("warpcall_kernel_waves" + run + "}"), 1.5);
  EXPECT_EQ(Value("warpcall_kernel_wave_efficiency_ratio" + run + "}"), 0.75);
  trace.launch.waves = 0;  // an empty tensor: nothing was launched
  sink_.Record(trace);
  EXPECT_EQ(Value("warpcall_kernel_wave_efficiency_ratio" + run + "}"), 0);
}

TEST_F(PrometheusSinkTest, WhatAProfileCountedIsShownBesideTheTheory) {
  const std::string achieved =
      R"(warpcall_kernel_occupancy_ratio{device="cuda:0",implementation="cuda",kernel="alpha",)"
      R"(kind="achieved"})";
  RequestTrace trace = RunTrace(kAlpha, kAlphaTiled, kCudaDevice);
  trace.launch = {.theoretical_occupancy = 0.75, .waves = 1};
  sink_.Record(trace);
  EXPECT_EQ(Scrape(sink_).count(achieved), 0u);
  sink_.SetAchievedOccupancy(kAlphaTiled, kCudaDevice, 0.5);
  EXPECT_EQ(Value(achieved), 0.5);
  sink_.Record(trace);
  sink_.SetAchievedOccupancy(kAlphaPlain, kCpuDevice, 0.25);  // a row without a shape
  for (const int outside : {-1, 3}) {
    sink_.SetAchievedOccupancy(outside, kCudaDevice, 1);
    sink_.SetAchievedOccupancy(kAlphaTiled, outside, 1);
  }
  EXPECT_EQ(Value(achieved), 0.5);
  EXPECT_EQ(SumOf(Scrape(sink_), "warpcall_kernel_occupancy_ratio", {}), 0.75 + 0.5);
}

TEST_F(PrometheusSinkTest, CountersOfAFastGpuDoNotWrap) {
  RequestTrace trace = RunTrace(kAlpha, kAlphaTiled, kCudaDevice);
  trace.work.flops = int64_t{1} << 62;
  for (int i = 0; i < 8; ++i) sink_.Record(trace);
  EXPECT_EQ(
      Value(R"(warpcall_kernel_flops_total{device="cuda:0",implementation="cuda",kernel="alpha"})"),
      0x1p65);
}

TEST(PrometheusSinkDevicesTest, OneThatCouldNotBeOpenedIsShownAsNotHealthy) {
  PrometheusSink::Options options = SinkOptions({DeviceSnapshot(), DeviceSnapshot()});
  options.devices_left_out = {"cuda:1", "cuda:7"};
  const Samples samples = Scrape(PrometheusSink(MadeUpRegistry(), std::move(options)));
  Samples healthy;
  for (const auto& [series, value] : samples) {
    if (absl::StartsWith(series, "warpcall_device_healthy"))
      healthy[series] = value;
    else
      EXPECT_FALSE(absl::StrContains(series, "cuda:1")) << series;
  }
  EXPECT_EQ(healthy, (Samples{{R"(warpcall_device_healthy{device="cpu"})", 1},
                              {R"(warpcall_device_healthy{device="cuda:0"})", 1},
                              {R"(warpcall_device_healthy{device="cuda:1"})", 0},
                              {R"(warpcall_device_healthy{device="cuda:7"})", 0}}));
}

TEST(PrometheusSinkDevicesTest, SnapshotsAreShownPerDevice) {
  DeviceSnapshot cpu;
  cpu.queue_depth = 3;
  cpu.queue_bytes = 4096;
  cpu.queue_work_seconds = 0.75;
  cpu.queue_oldest_age_seconds = 0.5;
  cpu.staging_total_bytes = int64_t{1} << 30;
  cpu.staging_used_bytes = 12345;
  cpu.memory_total_bytes = int64_t{141} << 30;
  cpu.memory_used_bytes = 99;
  cpu.busy_seconds = 1.25;
  cpu.bandwidth_ceiling = {4.2e12, 0.03};
  DeviceSnapshot cuda;
  cuda.queue_depth = 8;
  const PrometheusSink sink(MadeUpRegistry(), SinkOptions({cpu, cuda}));
  const Samples samples = Scrape(sink);
  EXPECT_EQ(samples.at(R"(warpcall_queue_depth{device="cpu"})"), 3);
  EXPECT_EQ(samples.at(R"(warpcall_queue_depth{device="cuda:0"})"), 8);
  EXPECT_EQ(samples.at(R"(warpcall_queue_bytes{device="cpu"})"), 4096);
  EXPECT_EQ(samples.at(R"(warpcall_queue_work_seconds{device="cpu"})"), 0.75);
  EXPECT_EQ(samples.at(R"(warpcall_queue_oldest_age_seconds{device="cpu"})"), 0.5);
  EXPECT_EQ(samples.at(R"(warpcall_staging_bytes{device="cpu",state="total"})"), 0x1p30);
  EXPECT_EQ(samples.at(R"(warpcall_staging_bytes{device="cpu",state="used"})"), 12345);
  EXPECT_EQ(samples.at(R"(warpcall_device_memory_bytes{device="cpu",state="total"})"),
            141 * 0x1p30);
  EXPECT_EQ(samples.at(R"(warpcall_device_memory_bytes{device="cpu",state="used"})"), 99);
  EXPECT_EQ(samples.at(R"(warpcall_device_busy_seconds_total{device="cpu"})"), 1.25);
  EXPECT_EQ(samples.at(R"(warpcall_device_busy_seconds_total{device="cuda:0"})"), 0);
  const std::string ceiling = "warpcall_device_bandwidth_ceiling_bytes_per_second";
  EXPECT_EQ(samples.at(ceiling + R"({device="cpu"})"), 4.2e12);
  EXPECT_EQ(samples.at(ceiling + R"({device="cuda:0"})"), 0);
  const std::string noise = "warpcall_device_bandwidth_ceiling_noise_ratio";
  EXPECT_EQ(samples.at(noise + R"({device="cpu"})"), 0.03);
  EXPECT_EQ(samples.at(noise + R"({device="cuda:0"})"), 1);
}

}  // namespace
}  // namespace warpcall::testing
