// Recording on many threads while the metrics are scraped.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/server/metrics/sink_fixture.h"

namespace warpcall::testing {
namespace {

constexpr int kThreads = 8;
constexpr int kRecordsPerRound = 500;
constexpr int kScrapes = 30;

bool IsCounter(const std::string& series) {
  return absl::StartsWith(series, "warpcall_") &&
         (absl::StrContains(series, "_total{") || absl::StrContains(series, "_bucket{") ||
          absl::StrContains(series, "_sum{") || absl::StrContains(series, "_count{"));
}

// TraceOf fills: two pairs, five phases of a kernel, two runs.
constexpr int kHistograms = 2 + 5 + 2;

// Within one scrape: no bucket is under the one before it, and count equals the last. Histograms
// that recorded nothing yet are not there.
void CheckHistograms(const std::string& text, int* histograms) {
  uint64_t last = 0;
  uint64_t value = 0;
  *histograms = 0;
  for (const auto& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const size_t blank = line.rfind(' ');
    if (absl::StrContains(line, "_bucket{")) {
      ASSERT_TRUE(absl::SimpleAtoi(line.substr(blank + 1), &value)) << line;
      ASSERT_GE(value, last) << line;
      last = absl::StrContains(line, "le=\"+Inf\"") ? 0 : value;
      if (last == 0 && absl::StrContains(line, "+Inf")) {
        std::string count = absl::StrReplaceAll(
            line.substr(0, blank),
            {{"_bucket{le=\"+Inf\"}", "_count"}, {"_bucket{", "_count{"}, {",le=\"+Inf\"", ""}});
        ASSERT_TRUE(absl::StrContains(text, count + " " + std::to_string(value) + "\n")) << line;
        ++*histograms;
      }
    }
  }
  ASSERT_LE(*histograms, kHistograms);
}

RequestTrace TraceOf(int i) {
  RequestTrace trace = RunTrace(kAlpha, i % 2 == 0 ? kAlphaPlain : kAlphaTiled,
                                i % 2 == 0 ? kCpuDevice : kCudaDevice);
  trace.total_ns = 1 + i * 997;
  trace.queue_ns = i;
  trace.kernel_ns = 2 * i;
  trace.work = {.bytes = 3, .flops = i};
  trace.copy_in_bytes = i;
  trace.launch.waves = i % 3;
  if (i % 5 == 0) {
    trace.ran = false;
    trace.code = absl::StatusCode::kCancelled;
  }
  return trace;
}

TEST(PrometheusSinkConcurrencyTest, ScrapesStayConsistentAndTheFinalSumsAreExact) {
  PrometheusSink sink(MadeUpRegistry(), SinkOptions());
  std::atomic<int> scrapes{0};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (scrapes < kScrapes) {
        for (int i = 0; i < kRecordsPerRound; ++i) sink.Record(TraceOf(i));
        ++rounds;
      }
    });
  }
  Samples before = Scrape(sink);
  int histograms = 0;
  while (scrapes < kScrapes) {
    const std::string text = sink.Scrape();
    CheckHistograms(text, &histograms);
    Samples after = ParseMetricsText(text).samples;
    for (const auto& [series, value] : before) {
      if (!IsCounter(series)) continue;
      EXPECT_GE(after.at(series), value) << series;
    }
    before = std::move(after);
    ++scrapes;
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_GT(rounds, 0);
  CheckHistograms(sink.Scrape(), &histograms);
  EXPECT_EQ(histograms, kHistograms);

  double total_ns = 0, queue_ns = 0, kernel_ns = 0, flops = 0, bytes = 0, copied = 0, ran = 0;
  for (int i = 0; i < kRecordsPerRound; ++i) {
    const RequestTrace trace = TraceOf(i);
    total_ns += static_cast<double>(trace.total_ns);
    copied += static_cast<double>(trace.copy_in_bytes);
    if (!trace.ran) continue;
    ++ran;
    queue_ns += static_cast<double>(trace.queue_ns);
    kernel_ns += static_cast<double>(trace.kernel_ns);
    flops += static_cast<double>(trace.work.flops);
    bytes += static_cast<double>(trace.work.bytes);
  }
  const Samples samples = Scrape(sink);
  const double all = static_cast<double>(rounds) * kRecordsPerRound;
  EXPECT_EQ(SumOf(samples, "warpcall_requests_total", {}), all);
  EXPECT_EQ(SumOf(samples, "warpcall_requests_total", {"CANCELLED"}), all / 5);
  EXPECT_EQ(SumOf(samples, "warpcall_request_duration_seconds_count", {}), all);
  EXPECT_EQ(SumOf(samples, "warpcall_kernel_duration_seconds_count", {}), rounds * ran);
  EXPECT_DOUBLE_EQ(SumOf(samples, "warpcall_request_duration_seconds_sum", {}),
                   rounds * total_ns / 1e9);
  EXPECT_DOUBLE_EQ(SumOf(samples, "warpcall_phase_duration_seconds_sum", {"\"queue\""}),
                   rounds * queue_ns / 1e9);
  EXPECT_DOUBLE_EQ(SumOf(samples, "warpcall_kernel_duration_seconds_sum", {}),
                   rounds * kernel_ns / 1e9);
  EXPECT_EQ(SumOf(samples, "warpcall_kernel_flops_total", {}), rounds * flops);
  EXPECT_EQ(SumOf(samples, "warpcall_kernel_bytes_total", {}), rounds * bytes);
  EXPECT_EQ(SumOf(samples, "warpcall_host_copy_bytes_total", {"copy_in"}), rounds * copied);
}

}  // namespace
}  // namespace warpcall::testing
