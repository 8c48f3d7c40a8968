// The tables that the transport benchmark makes from its figures.
#include "tests/bench/transport_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/bench/transport_measure.h"

namespace warpcall::bench {
namespace {

using ::testing::HasSubstr;

TEST(SummarizeTest, RatesAreOfTheWallAndCpuTimeIsPerRequest) {
  Tally tally;
  for (const int64_t us : {30, 10, 20, 40}) tally.latencies.Record(us * 1000);
  tally.wall_seconds = 0.5;
  tally.server_cpu_seconds = 0.002;
  const Figures figures = Summarize(tally, 1'000'000);
  EXPECT_EQ(figures.requests, 4);
  EXPECT_NEAR(figures.p50_us, 20, 20 * cli::LatencyHistogram::kRelativeErrorMax);
  EXPECT_EQ(figures.p999_us, 40);
  EXPECT_DOUBLE_EQ(figures.requests_per_second, 8);
  EXPECT_DOUBLE_EQ(figures.gigabytes_per_second, 0.008);
  EXPECT_DOUBLE_EQ(figures.server_cpu_us, 500);
  EXPECT_EQ(Summarize(Tally(), 64).requests_per_second, 0);
}

// Two ByteBuffer echoes, the better rate of one and the better p50 of the other; then protobuf's,
// faster than both, and warpcalld.
Results ResultsAt(const Point& point) {
  Results results;
  const auto add = [&](const Contender& contender, double p50_us, double requests_per_second) {
    results.Add({point, contender, {.p50_us = p50_us, .requests_per_second = requests_per_second}});
  };
  add({ContenderKind::kEcho}, 50, 100);
  add({ContenderKind::kEchoDefaults}, 44, 80);
  add({ContenderKind::kProtobuf}, 40, 200);
  add({ContenderKind::kRaw, "identity"}, 69, 74);
  return results;
}

TEST(TransportTableTest, RowsAreComparedWithTheBetterEcho) {
  const Point small = {Transport::kTcp, 1, 4096};
  EXPECT_THAT(TableLines(ResultsAt(small), small),
              HasSubstr("| TCP | 1 | 4096 | warpcall identity | 69.0 | 0.0 | 0.0 | 74.0 | 0.000 | "
                        "0.74 | +25.0 | 0.0 |\n"));
  // A difference of large requests' p50 says nothing.
  const Point large = {Transport::kTcp, 1, 16 << 20};
  EXPECT_THAT(TableLines(ResultsAt(large), large), HasSubstr("| 0.74 | – | 0.0 |\n"));
  EXPECT_EQ(TableLines(ResultsAt(large), small), "");
}

TEST(TransportTableTest, APeersCpuTimeIsNotTold) {
  const Point point = {Transport::kTcp, 1, 4096};
  Results results;
  results.Add({point,
               {ContenderKind::kPeer, "gelu"},
               {.p50_us = 300, .requests_per_second = 3000, .server_cpu_us = 0}});
  EXPECT_EQ(
      TableLines(results, point),
      "| TCP | 1 | 4096 | peer gelu (ModelInfer) | 300.0 | 0.0 | 0.0 | 3000.0 | 0.000 | – | – "
      "| – |\n");
}

TEST(TransportTableTest, BenchmarksHaveBothNumbersOfConnectionsAndTheUnixSocket) {
  const Point one = {Transport::kTcp, 1, 4096}, unix_socket = {Transport::kUnix, 1, 4096};
  Results results = ResultsAt(one);
  results.Add({unix_socket, {ContenderKind::kRaw, "gelu"}, {.p50_us = 7}});
  EXPECT_THAT(BenchmarksTable(results),
              HasSubstr("| 4 KiB | warpcall identity | 69.0 | 74 | 0.000 | 0.74 | – | – | – | – |\n"
                        "\nOver a Unix socket, one connection, p50 in us: 4 KiB: "
                        "warpcall gelu 7.0.\n"));
  results.Add({{Transport::kTcp, kBenchmarksConnections, 4096},
               {ContenderKind::kRaw, "identity"},
               {.p50_us = 99, .requests_per_second = 300}});
  EXPECT_THAT(BenchmarksTable(results), HasSubstr("| 0.74 | 99.0 | 300 | 0.000 | – |\n"));
}

}  // namespace
}  // namespace warpcall::bench
