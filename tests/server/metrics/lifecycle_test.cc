#include "server/metrics/lifecycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadyOf(const Lifecycle& lifecycle) {
  const absl::StatusOr<std::string> ready = lifecycle.Ready();
  return ready.ok() ? *ready : absl::StrCat("503 ", ready.status().message());
}

TEST(Lifecycle, SaysWhatTheStartDoes) {
  Lifecycle lifecycle({}, [] { return int64_t{0}; });
  EXPECT_EQ(ReadyOf(lifecycle), "503 starting");
  lifecycle.SetTesting("testing gelu (3 of 48)");
  EXPECT_EQ(ReadyOf(lifecycle), "503 starting: testing gelu (3 of 48)");
  lifecycle.SetStep("opening the devices");
  EXPECT_EQ(ReadyOf(lifecycle), "503 starting: opening the devices; testing gelu (3 of 48)");
  lifecycle.SetTesting("");
  EXPECT_EQ(ReadyOf(lifecycle), "503 starting: opening the devices");
}

TEST(Lifecycle, IsReadyOnlyWhileItServes) {
  Lifecycle lifecycle({}, [] { return int64_t{0}; });
  absl::Status state;
  lifecycle.SetAnswers({.scrape = nullptr, .ready = [&]() -> absl::StatusOr<std::string> {
                          if (!state.ok()) return state;
                          return "ok";
                        }});
  EXPECT_EQ(ReadyOf(lifecycle), "503 starting");
  lifecycle.Enter(ServerPhase::kServing);
  EXPECT_EQ(ReadyOf(lifecycle), "ok");
  state = absl::UnavailableError("no connections are accepted");
  EXPECT_EQ(ReadyOf(lifecycle), "503 no connections are accepted");
  state = absl::OkStatus();
  lifecycle.Enter(ServerPhase::kLameDuck);
  EXPECT_EQ(ReadyOf(lifecycle), "503 stopping: still serving, for load balancers to notice");
  lifecycle.Enter(ServerPhase::kDraining);
  EXPECT_EQ(ReadyOf(lifecycle), "503 stopping: finishing what was accepted");
}

TEST(Lifecycle, HasAStatusBeforeThereAreDevices) {
  Lifecycle lifecycle({"1.2.3", "gcc", "none"}, [] { return int64_t{0}; });
  lifecycle.SetStep("opening the devices");
  const ServerStatus starting = lifecycle.Status();
  EXPECT_EQ(starting.build.version, "1.2.3");
  EXPECT_EQ(starting.readiness, "starting: opening the devices");
  EXPECT_FALSE(starting.is_ready);
  EXPECT_GE(starting.uptime_seconds, 0);
  EXPECT_GT(starting.unix_ns, 0);
  EXPECT_TRUE(starting.devices.empty());
  lifecycle.SetAnswers({.scrape = nullptr,
                        .ready = [] { return "ok"; },
                        .describe = [](ServerStatus* status) { status->devices.resize(1); }});
  lifecycle.Enter(ServerPhase::kServing);
  const ServerStatus serving = lifecycle.Status();
  EXPECT_EQ(serving.phase, ServerPhase::kServing);
  EXPECT_TRUE(serving.is_ready);
  EXPECT_EQ(serving.readiness, "ok");
  EXPECT_EQ(serving.devices.size(), 1u);
}

TEST(Lifecycle, HasMetricsBeforeThereAreDevices) {
  Lifecycle lifecycle({"1.2.3", "gcc", "none"}, [] { return int64_t{7}; });
  const std::string text = lifecycle.Scrape(MetricsFormat::kPrometheus);
  EXPECT_THAT(text, HasSubstr("warpcall_server_phase{phase=\"starting\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("warpcall_server_phase{phase=\"serving\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("warpcall_build_info{version=\"1.2.3\""));
  EXPECT_THAT(text, HasSubstr("warpcall_log_lines_dropped_total 7\n"));
  EXPECT_THAT(text, HasSubstr("process_start_time_seconds "));
  EXPECT_THAT(text, Not(HasSubstr("# EOF")));
  EXPECT_THAT(lifecycle.Scrape(MetricsFormat::kOpenMetrics), ::testing::EndsWith("# EOF\n"));
  lifecycle.Enter(ServerPhase::kDraining);
  EXPECT_THAT(lifecycle.Scrape(MetricsFormat::kPrometheus),
              HasSubstr("warpcall_server_phase{phase=\"draining\"} 1\n"));
  lifecycle.SetAnswers({.scrape = [](MetricsFormat) { return "all"; }, .ready = nullptr});
  EXPECT_EQ(lifecycle.Scrape(MetricsFormat::kPrometheus), "all");
}

}  // namespace
}  // namespace warpcall
