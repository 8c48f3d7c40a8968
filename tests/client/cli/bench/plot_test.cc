#include "client/cli/bench/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;
using ::testing::HasSubstr;
using ::testing::Not;

BenchmarkResult ResultOf(const std::string& implementation, int64_t bytes) {
  BenchmarkResult result;
  result.set_implementation(implementation);
  result.set_family("cuda");
  result.set_median_ns(2000 + static_cast<double>(bytes) / 4000);
  result.set_bytes_per_second(static_cast<double>(bytes) / result.median_ns() * 1e9);
  result.set_flops_per_second(result.bytes_per_second() * 0.75);
  result.set_fraction_of_ceiling(result.bytes_per_second() / 4.3e12);
  result.mutable_launch()->set_bytes_moved(bytes);
  result.mutable_launch()->set_flops(bytes * 3 / 4);
  return result;
}

BenchPoint PointOf(const std::string& shape, DataType type,
                   const std::vector<BenchmarkResult>& results) {
  BenchPoint point;
  point.shape = shape;
  point.data_type = type;
  point.status = absl::OkStatus();
  point.report.mutable_results()->Assign(results.begin(), results.end());
  point.report.set_device("cuda:0");
  point.report.set_ceiling_bytes_per_second(4.3e12);
  return point;
}

BenchReport Sweep(const std::vector<std::string>& implementations,
                  const std::vector<DataType>& types, int sizes) {
  BenchReport report{.kernel = "softmax", .attributes = {{"axis", int64_t{-1}}}};
  for (const DataType type : types) {
    for (int i = 0; i < sizes; ++i) {
      std::vector<BenchmarkResult> results;
      for (const std::string& name : implementations)
        results.push_back(ResultOf(name, int64_t{4096} << (2 * i)));
      report.points.push_back(PointOf(absl::StrCat(1024 << i), type, results));
    }
  }
  return report;
}

int Count(const std::string& text, const std::string& part) {
  const std::vector<std::string> pieces = absl::StrSplit(text, part);
  return static_cast<int>(pieces.size()) - 1;
}

// Returns the error of Python's XML parser; empty if `svg` is well-formed.
std::string XmlError(const std::string& svg) {
  const warpcall::testing::TempFolder folder;
  const std::string path = folder.Path("plot.svg");
  std::ofstream(path) << svg;
  const auto run = warpcall::testing::RunProgram(absl::StrCat(
      "python3 -c 'import sys, xml.etree.ElementTree as e; "
      "assert e.parse(sys.argv[1]).getroot().tag == \"{http://www.w3.org/2000/svg}svg\"' '",
      path, "'"));
  return run.exit_status == 0 ? "" : absl::StrCat("python3: ", run.err);
}

TEST(BenchPlotTest, EachImplementationAndTypeHasALineInBothPanelsOverSize) {
  const std::string svg = BenchPlot(Sweep({"warp_per_row", "cudnn_softmax", "chain_of_kernels"},
                                          {DataType::kFloat32, DataType::kBFloat16}, 5));
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_EQ(Count(svg, "<polyline"), 3 * 2 * 2);
  EXPECT_EQ(Count(svg,
                  "<polyline fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.6\" "
                  "stroke-dasharray"),
            2);  // bfloat16 of one implementation
  // Three panels and the legend's.
  EXPECT_EQ(Count(svg, "<title>"), 3 * 2 * 5 * 3 + 3);
  for (const char* text : {">warp_per_row<", ">cudnn_softmax<", ">chain_of_kernels<", ">float32<",
                           ">bfloat16<", ">softmax axis=-1 on cuda:0, bfloat16, float32<",
                           ">copy ceiling 4.30 TB/s<", ">best seen: ", ">5 us<", ">4096<", ">N<",
                           ">median time of a launch, with its 95 % interval<",
                           ">arithmetic intensity, FLOP per byte moved<", ">100%<"})
    EXPECT_THAT(svg, HasSubstr(text));
}

TEST(BenchPlotTest, OnePointIsMarkedInEveryPanel) {
  const std::string svg = BenchPlot(Sweep({"warp_per_row"}, {DataType::kFloat16}, 1));
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_EQ(Count(svg, "<polyline"), 0);
  EXPECT_EQ(Count(svg, "<title>"), 3 + 1);
  EXPECT_THAT(svg, HasSubstr("warp_per_row 1024 float16: "));
}

TEST(BenchPlotTest, PointsThatOnlyTheirTypeTellsApartStandOverBytes) {
  const std::string svg = BenchPlot(Sweep({"copy"}, {DataType::kFloat32, DataType::kFloat16}, 1));
  EXPECT_THAT(svg, HasSubstr(">bytes moved at least<"));
  EXPECT_THAT(svg, HasSubstr(" KiB<"));
}

TEST(BenchPlotTest, AGridHasALineForEachValueOfItsSecondAxis) {
  BenchReport report{.kernel = "softmax"};
  for (const int rows : {64, 4096})
    for (const int columns : {256, 512, 1024})
      report.points.push_back(PointOf(absl::StrCat(rows, "x", columns), DataType::kFloat32,
                                      {ResultOf("copy", int64_t{8} * rows * columns)}));
  const std::string svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_EQ(Count(svg, "<polyline"), 2 * 2);
  EXPECT_EQ(Count(svg, ">N of MxN<"), 2);  // under both panels over it
  EXPECT_EQ(Count(svg, ">M=64<"), 2);
  EXPECT_EQ(Count(svg, ">M=4096<"), 2);
}

TEST(BenchPlotTest, NoiseIsABandAroundTheLineAndABarAtEachPoint) {
  BenchReport report = Sweep({"copy"}, {DataType::kFloat32}, 3);
  const std::string bare = BenchPlot(report);
  for (BenchPoint& point : report.points) {
    BenchmarkResult& result = *point.report.mutable_results(0);
    result.set_median_low_ns(result.median_ns() * 0.9);
    result.set_median_high_ns(result.median_ns() * 1.2);
  }
  const std::string svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_EQ(Count(bare, "<polygon"), 0);
  EXPECT_EQ(Count(svg, "<polygon"), 1);
  EXPECT_EQ(Count(svg, "<line") - Count(bare, "<line"), 3);
}

TEST(BenchPlotTest, MachineAndDateStandUnderTheTitle) {
  BenchReport report = Sweep({"copy"}, {DataType::kFloat32}, 2);
  report.server.host = "box";
  for (BenchPoint& point : report.points) {
    client::RunStamp& stamp = *point.report.mutable_stamp();
    stamp.set_device_description("NVIDIA H200");
    stamp.set_server_version("0.1.0");
    stamp.set_started_unix_ns(int64_t{1'700'000'000} * 1'000'000'000);
  }
  EXPECT_THAT(BenchPlot(report),
              HasSubstr(">host box; cuda:0: NVIDIA H200; warpcalld 0.1.0; 2023-11-14 22:13 UTC<"));
}

TEST(BenchPlotTest, WhatHasNoPlaceIsLeftOut) {
  BenchReport report = Sweep({"warp_per_row", "other"}, {DataType::kFloat32}, 3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  auto& results = *report.points[1].report.mutable_results();
  results[0].set_fraction_of_ceiling(nan);
  results[0].set_flops_per_second(infinity);
  results[1].set_error("the row takes no such shape");
  BenchmarkResult unmeasured = ResultOf("unmeasured", 4096);
  unmeasured.set_median_ns(0);
  BenchmarkResult strange = ResultOf("strange", 4096);
  strange.set_median_ns(nan);
  BenchmarkResult empty = ResultOf("empty", 0);
  for (const BenchmarkResult& result : {unmeasured, strange, empty, BenchmarkResult()})
    *results.Add() = result;
  report.points[2].status = absl::UnimplementedError("no row takes this");
  report.points[2].report = {};
  report.points.push_back(PointOf("0", DataType::kFloat32, {ResultOf("zero", 0)}));
  report.points.back().report.set_ceiling_bytes_per_second(nan);
  const std::string svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  for (const char* name : {"unmeasured", "strange", "empty", "zero"})
    EXPECT_THAT(svg, Not(HasSubstr(name)));
  // Time: 2 of warp_per_row and 1 of other; without share and rate, one less each.
  EXPECT_EQ(Count(svg, "<title>"), 3 + 2 + 2 + 2);
  EXPECT_EQ(Count(svg, "<polyline"), 1);
}

TEST(BenchPlotTest, SharesOfReadsSaySo) {
  constexpr int kSizes = 8;
  BenchReport report = Sweep({"row"}, {DataType::kFloat32}, kSizes);
  for (BenchPoint& point : report.points) {
    point.report.set_read_ceiling_bytes_per_second(4.6e12);
    point.report.mutable_results(0)->set_fraction_of_ceiling(0.97);
  }
  std::string svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_THAT(svg, HasSubstr(">Share of the read ceiling<"));
  EXPECT_THAT(svg, HasSubstr(">read ceiling 4.60 TB/s<"));
  EXPECT_THAT(svg, Not(HasSubstr(">copy ceiling ")));
  EXPECT_EQ(Count(svg, ", 97% of reads</title>"), kSizes * 3);
  // The copy stays the ceiling of one point.
  report.points[1].report.clear_read_ceiling_bytes_per_second();
  svg = BenchPlot(report);
  EXPECT_THAT(svg, HasSubstr(">Share of the copy or read ceiling<"));
  EXPECT_THAT(svg, HasSubstr(">read ceiling 4.60 TB/s<"));
  EXPECT_THAT(svg, HasSubstr(">copy ceiling 4.30 TB/s<"));
  EXPECT_EQ(Count(svg, ", 97% of reads</title>"), (kSizes - 1) * 3);
}

TEST(BenchPlotTest, PanelsWithoutAnythingSayWhy) {
  BenchReport report = Sweep({"copy"}, {DataType::kFloat32}, 2);
  for (BenchPoint& point : report.points) {
    point.report.set_ceiling_bytes_per_second(0);
    point.report.mutable_results(0)->set_fraction_of_ceiling(0);
    point.report.mutable_results(0)->set_flops_per_second(0);
    point.report.mutable_results(0)->mutable_launch()->set_flops(0);
  }
  std::string svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_THAT(svg, HasSubstr(">no copy ceiling was measured<"));
  EXPECT_THAT(svg, HasSubstr(">no arithmetic was counted<"));
  EXPECT_EQ(Count(svg, "<polyline"), 1);
  for (BenchPoint& point : report.points) point.report = {};
  svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_THAT(svg, HasSubstr(">nothing was measured<"));
}

TEST(BenchPlotTest, TextIsEscaped) {
  BenchReport report = Sweep({"a<b>&\"c\"'\x01"}, {DataType::kFloat32}, 2);
  report.kernel = "</svg>&amp;";
  const std::string svg = BenchPlot(report);
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_THAT(svg, HasSubstr(">a&lt;b&gt;&amp;&quot;c&quot;'\\x01<"));
  EXPECT_THAT(svg, HasSubstr("&lt;/svg&gt;&amp;amp;"));
}

TEST(BenchPlotTest, ManyImplementationsAllLookDifferent) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back(absl::StrCat("row_", i));
  const std::string svg = BenchPlot(Sweep(names, {DataType::kFloat32}, 1));
  std::set<std::string> looks;
  const std::vector<std::string> lines = absl::StrSplit(svg, '\n');
  for (const std::string& line : lines) {
    if (!absl::StrContains(line, "<title>")) continue;
    const size_t place = line.find("transform"), color = line.find("fill=");
    looks.insert(line.substr(0, place) + line.substr(color, 14));
  }
  EXPECT_EQ(looks.size(), names.size());
}

TEST(BenchPlotTest, DevicesAreToldApart) {
  BenchReport report = Sweep({"copy"}, {DataType::kFloat32}, 8);
  const BenchReport other = Sweep({"copy"}, {DataType::kFloat32}, 8);
  for (BenchPoint point : other.points) {
    point.report.set_device("cuda:1");
    report.points.push_back(point);
  }
  const std::string svg = BenchPlot(report);
  EXPECT_THAT(svg, HasSubstr(">copy (cuda:0)<"));
  EXPECT_THAT(svg, HasSubstr(">copy (cuda:1)<"));
  EXPECT_THAT(svg, HasSubstr(" on cuda:0, cuda:1, "));
  EXPECT_THAT(svg, HasSubstr(">cuda:0: copy ceiling 4.30 TB/s<"));
  EXPECT_THAT(svg, HasSubstr(">cuda:1: copy ceiling 4.30 TB/s<"));
}

}  // namespace
}  // namespace warpcall::cli
