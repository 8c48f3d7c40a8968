#include "server/transport/load_report.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

LoadSample::OfDevice Gpu(const char* name, double busy_seconds) {
  return {.name = name, .counts = true, .busy_seconds = busy_seconds};
}

TEST(LoadReportTest, TellsRatesAndSharesOfThePeriod) {
  LoadSample before{.time_ns = 1'000'000'000, .replies = 100, .errors = 10};
  before.devices = {Gpu("cuda:0", 5), Gpu("cuda:1", 7), {.name = "cpu", .busy_seconds = 1}};
  LoadSample after{.time_ns = 3'000'000'000, .replies = 150, .errors = 11};
  after.devices = {Gpu("cuda:0", 6), Gpu("cuda:1", 8.5), {.name = "cpu", .busy_seconds = 3}};
  after.devices[1].work_seconds = 0.25;
  after.devices[1].memory_used = 0.75;
  const auto report = MakeLoadReport(before, after);
  EXPECT_EQ(report.rps_fractional(), 25);
  EXPECT_EQ(report.eps(), 0.5);
  EXPECT_EQ(report.utilization().at("cuda:0"), 0.5);
  EXPECT_EQ(report.utilization().at("cuda:1"), 0.75);
  EXPECT_EQ(report.utilization().at("cpu"), 1);
  EXPECT_EQ(report.application_utilization(), 0.625) << "the CPU is not where calls go";
  EXPECT_EQ(report.named_metrics().at("queue_seconds.cuda:0"), 0);
  EXPECT_EQ(report.named_metrics().at("queue_seconds.cuda:1"), 0.25);
  EXPECT_EQ(report.mem_utilization(), 0.75);
}

TEST(LoadReportTest, LeavesOutDevicesThatAreLost) {
  LoadSample before{.time_ns = 0};
  before.devices = {Gpu("cuda:0", 0), Gpu("cuda:1", 0)};
  LoadSample after{.time_ns = 1'000'000'000};
  after.devices = {Gpu("cuda:0", 0.5), Gpu("cuda:1", 0)};
  after.devices[1].healthy = false;
  EXPECT_EQ(MakeLoadReport(before, after).application_utilization(), 0.5);
  after.devices[0].healthy = false;
  EXPECT_EQ(MakeLoadReport(before, after).application_utilization(), 1);
}

TEST(LoadReportTest, OfNoTimeIsOfNothing) {
  LoadSample sample{.time_ns = 5, .replies = 3};
  sample.devices = {Gpu("cuda:0", 1)};
  const auto report = MakeLoadReport(sample, sample);
  EXPECT_EQ(report.rps_fractional(), 0);
  EXPECT_EQ(report.application_utilization(), 0);
}

TEST(LoadReportTest, CallersErrorsAreNotTheServers) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kOk, absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound,
        absl::StatusCode::kCancelled, absl::StatusCode::kUnimplemented,
        absl::StatusCode::kUnauthenticated, absl::StatusCode::kPermissionDenied})
    EXPECT_FALSE(IsServersError(code)) << static_cast<int>(code);
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kInternal,
        absl::StatusCode::kResourceExhausted, absl::StatusCode::kDeadlineExceeded})
    EXPECT_TRUE(IsServersError(code)) << static_cast<int>(code);
}

}  // namespace
}  // namespace warpcall
