#include "client/cli/bench/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

MeasuredRow RowOf(const std::string& implementation, double median_ns, double half_width_ns) {
  MeasuredRow row{.shape = "8x32", .data_type = "float32", .device = "cpu"};
  row.result.set_implementation(implementation);
  row.result.set_median_ns(median_ns);
  row.result.set_median_low_ns(median_ns - half_width_ns);
  row.result.set_median_high_ns(median_ns + half_width_ns);
  row.result.set_iterations(100);
  return row;
}

// A row that is too noisy to rank, one without a known interval, and one that did not run.
MeasuredRow UnstableRow(const std::string& implementation, double median_ns) {
  MeasuredRow row = RowOf(implementation, median_ns, 1);
  row.result.set_unstable(true);
  return row;
}
MeasuredRow UnknownRow(const std::string& implementation, double median_ns) {
  MeasuredRow row = RowOf(implementation, median_ns, 0);
  row.result.set_median_low_ns(0);
  row.result.set_median_high_ns(0);
  return row;
}
MeasuredRow BrokenRow(const std::string& implementation) {
  MeasuredRow row = RowOf(implementation, 0, 0);
  row.result.set_error("crashed");
  return row;
}

Measurements MeasurementsOf(const std::string& name, std::vector<MeasuredRow> rows) {
  Measurements all{.name = name, .kernel = "softmax", .rows = std::move(rows)};
  for (const MeasuredRow& row : all.rows) all.devices[row.device].device = row.device;
  return all;
}

std::map<std::string, std::string> Verdicts(const BenchComparison& comparison) {
  std::map<std::string, std::string> verdicts;
  for (const ComparedRow& row : comparison.rows)
    verdicts[row.either().result.implementation()] = row.verdict;
  return verdicts;
}

TEST(ComparisonTest, VerdictsAreOfTheIntervalsNotOfTheMedians) {
  const auto comparison =
      Compare(MeasurementsOf(
                  "a", {RowOf("faster", 100, 5), RowOf("slower", 100, 5), RowOf("alike", 100, 15),
                        RowOf("touching", 100, 5), RowOf("unstable", 100, 1),
                        RowOf("unknown", 100, 1), RowOf("broken", 100, 1), RowOf("gone", 100, 1)}),
              MeasurementsOf("b", {RowOf("faster", 80, 14.9), RowOf("slower", 120, 14.9),
                                   RowOf("alike", 120, 15), RowOf("touching", 110, 5),
                                   UnstableRow("unstable", 50), UnknownRow("unknown", 50),
                                   BrokenRow("broken"), RowOf("new", 100, 1)}));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(
      Verdicts(*comparison),
      UnorderedElementsAre(Pair("faster", "faster"), Pair("slower", "slower"),
                           Pair("alike", "no difference seen"),
                           Pair("touching", "no difference seen"), Pair("unstable", "unstable"),
                           Pair("unknown", "no interval known"), Pair("broken", "no longer runs"),
                           Pair("gone", "only before"), Pair("new", "only after")));
  EXPECT_DOUBLE_EQ(comparison->rows[1].ratio, 1.2);
  EXPECT_DOUBLE_EQ(comparison->rows[1].ratio_low, 105.1 / 105);
  EXPECT_DOUBLE_EQ(comparison->rows[1].ratio_high, 134.9 / 95);
}

TEST(ComparisonTest, RegressionsAreWhatIsSurelySlowerByMoreAndWhatNoLongerRuns) {
  const auto comparison = Compare(
      MeasurementsOf("a",
                     {RowOf("slower", 100, 1), RowOf("alike", 100, 50), RowOf("broken", 100, 1)}),
      MeasurementsOf("b", {RowOf("slower", 110, 1), RowOf("alike", 140, 50), BrokenRow("broken")}));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->Regressions(5), 2);
  EXPECT_EQ(comparison->Regressions(20), 1);
}

TEST(ComparisonTest, WhatCantBeJudgedIsMissingOrSlowerWithoutProof) {
  const auto comparison =
      Compare(MeasurementsOf("a", {RowOf("gone", 100, 1), RowOf("gone, too", 100, 1),
                                   BrokenRow("broken"), RowOf("unstable", 100, 1),
                                   RowOf("unknown", 100, 1), RowOf("quick", 100, 1)}),
              MeasurementsOf("b", {UnstableRow("unstable", 130), UnknownRow("unknown", 130),
                                   UnstableRow("quick", 50), RowOf("new", 100, 1)}));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->Regressions(5), 0);
  EXPECT_EQ(comparison->NotJudged(5).missing, 2);  // a row that did not run before is not missed
  EXPECT_EQ(comparison->NotJudged(5).noisy, 2);
  EXPECT_EQ(comparison->NotJudged(40).noisy, 0);
}

TEST(ComparisonTest, ARowOfAnUnknownDeviceIsThatOfAnyAmongSeveral) {
  MeasuredRow gpu = RowOf("copy", 10, 1), unknown = RowOf("loop", 100, 1);
  gpu.device = "cuda:0";
  unknown.device = "";
  const auto comparison =
      Compare(MeasurementsOf("a", {RowOf("copy", 100, 1), gpu, RowOf("loop", 100, 1)}),
              MeasurementsOf("b", {RowOf("copy", 100, 1), gpu, unknown}));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(Verdicts(*comparison),
              ElementsAre(Pair("copy", "no difference seen"), Pair("loop", "no difference seen")));
  EXPECT_THAT(comparison->rows, SizeIs(3));
}

TEST(ComparisonTest, ClocksFromAFileOverflowNothing) {
  Measurements before = MeasurementsOf("a", {RowOf("copy", 100, 1)});
  Measurements after = before;
  before.devices["cpu"].stamp.set_sm_clock_mhz_max(std::numeric_limits<int32_t>::min());
  after.devices["cpu"].stamp.set_sm_clock_mhz_max(std::numeric_limits<int32_t>::max());
  EXPECT_THAT(Compare(before, after)->warnings, IsEmpty());
}

TEST(ComparisonTest, OneDeviceIsComparedWithAnotherSeveralByTheirNames) {
  MeasuredRow gpu = RowOf("copy", 10, 1);
  gpu.device = "cuda:0";
  auto comparison =
      Compare(MeasurementsOf("a", {RowOf("copy", 100, 1)}), MeasurementsOf("b", {gpu}));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(comparison->warnings, ElementsAre("device differs: cpu and cuda:0"));
  EXPECT_THAT(Verdicts(*comparison), ElementsAre(Pair("copy", "faster")));
  comparison = Compare(MeasurementsOf("a", {RowOf("copy", 100, 1)}),
                       MeasurementsOf("b", {gpu, RowOf("copy", 99, 5)}));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(comparison->warnings, IsEmpty());
  ASSERT_THAT(comparison->rows, SizeIs(2));
  EXPECT_EQ(comparison->rows[0].verdict, "only after");
  EXPECT_EQ(comparison->rows[1].verdict, "no difference seen");
}

TEST(ComparisonTest, WhatDiffersAroundTheMeasurementsIsAWarning) {
  Measurements before = MeasurementsOf("a", {RowOf("copy", 100, 1)});
  Measurements after = before;
  before.devices["cpu"].host = after.devices["cpu"].host = "box";
  client::RunStamp& was = before.devices["cpu"].stamp;
  was.set_driver("580.1");
  was.set_sm_clock_mhz_max(1980);
  was.set_memory_clock_mhz(2619);
  was.set_started_unix_ns(1);
  client::RunStamp& is = after.devices["cpu"].stamp;
  is.set_driver("590.2");
  is.set_server_version("0.1.1");  // the other's is not known
  is.set_sm_clock_mhz_max(1950);   // a step or two of the clock
  is.set_memory_clock_mhz(1500);
  is.add_throttle_reasons("power");
  is.set_started_unix_ns(2);
  after.attributes = "axis=0";
  const auto comparison = Compare(before, after);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_THAT(
      comparison->warnings,
      ElementsAre("the attributes differ: '' and 'axis=0'", "driver differs: 580.1 and 590.2",
                  "memory clock differs: 2619 MHz and 1500 MHz", "throttled differs: - and power"));
}

TEST(MeasurementsTest, ConditionsOfADeviceAreThoseOfAllItsPoints) {
  const auto value = nlohmann::json::parse(R"({
    "kernel": "softmax", "server": {"host": "box", "version": "0.1.0"}, "points": [
      {"shape": "8", "data_type": "float32", "device": "cuda:0",
       "results": [{"implementation": "a"}],
       "stamp": {"driver": "580", "sm_clock_mhz_min": 1900, "sm_clock_mhz_max": 1950,
                 "throttle_reasons": ["power"], "samples_dropped": 2, "started_unix_ns": 7}},
      {"shape": "16", "data_type": "float32", "device": "cuda:0",
       "results": [{"implementation": "a"}],
       "stamp": {"driver": "590", "cuda": "13.0", "sm_clock_mhz_min": 1800,
                 "sm_clock_mhz_max": 1980, "throttle_reasons": ["power", "heat"],
                 "samples_dropped": 3, "started_unix_ns": 9}}]})");
  const auto measured = ToMeasurements("a.json", value);
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_THAT(measured->devices, SizeIs(1));
  const Conditions& device = measured->devices.at("cuda:0");
  EXPECT_EQ(device.host, "box");
  EXPECT_EQ(device.stamp.driver(), "580");
  EXPECT_EQ(device.stamp.cuda(), "13.0");
  EXPECT_EQ(device.stamp.server_version(), "0.1.0");
  EXPECT_EQ(device.stamp.sm_clock_mhz_min(), 1800);
  EXPECT_EQ(device.stamp.sm_clock_mhz_max(), 1980);
  EXPECT_EQ(device.stamp.samples_dropped(), 5);
  EXPECT_EQ(device.stamp.started_unix_ns(), 7);
  EXPECT_THAT(device.stamp.throttle_reasons(), ElementsAre("power", "heat"));
}

TEST(ComparisonTest, OnlyOneKernelAndSomethingInCommon) {
  Measurements other = MeasurementsOf("b.json", {RowOf("copy", 100, 1)});
  other.kernel = "gelu";
  auto comparison = Compare(MeasurementsOf("a.json", {RowOf("copy", 100, 1)}), other);
  EXPECT_EQ(comparison.status().message(),
            "a.json is of softmax, b.json of gelu: only one kernel's can be compared");
  comparison = Compare(MeasurementsOf("a.json", {RowOf("copy", 100, 1)}),
                       MeasurementsOf("b.json", {RowOf("x", 1, 0)}));
  EXPECT_THAT(comparison.status().message(), HasSubstr("no row in common"));
}

}  // namespace
}  // namespace warpcall::cli
