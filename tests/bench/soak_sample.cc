#include "tests/bench/soak_sample.h"

#include <httplib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/common/status_macros.h"
#include "tests/server/metrics/metrics_text.h"

namespace warpcall::bench {
namespace {

constexpr absl::Duration kRestTimeout = absl::Seconds(5);
constexpr double kMib = 1 << 20;

absl::StatusOr<testing::Samples> Scrape(const std::string& address) {
  httplib::Client http(absl::StrCat("http://", address));
  const httplib::Result result = http.Get("/metrics");
  if (!result || result->status != 200)
    return absl::UnavailableError(absl::StrCat("no metrics at ", address, ": ",
                                               result ? absl::StrCat("HTTP status ", result->status)
                                                      : httplib::to_string(result.error())));
  return testing::ParseMetricsText(result->body).samples;
}

SoakSample ToSample(const testing::Samples& metrics) {
  const auto sum = [&](const char* name, std::initializer_list<absl::string_view> labels) {
    return static_cast<int64_t>(testing::SumOf(metrics, name, labels));
  };
  const auto plain = [&](const char* name) {
    const auto found = metrics.find(name);
    return found == metrics.end() ? int64_t{0} : static_cast<int64_t>(found->second);
  };
  SoakSample sample;
  sample.staging_bytes = sum("warpcall_staging_bytes", {"state=\"used\""});
  sample.queue_depth = sum("warpcall_queue_depth", {});
  sample.rejected = sum("warpcall_rejected_total", {});
  sample.open_fds = plain("process_open_fds");
  sample.threads = plain("process_threads");
  sample.copied_in_bytes = sum("warpcall_host_copy_bytes_total", {"where=\"copy_in\""});
  sample.copied_out_bytes = sum("warpcall_host_copy_bytes_total", {"where=\"copy_out\""});
  return sample;
}

}  // namespace

absl::StatusOr<SoakSample> TakeSample(const BenchServer& server) {
  const absl::Time deadline = absl::Now() + kRestTimeout;
  SoakSample sample;
  do {
    testing::Samples metrics;
    ASSIGN_OR_RETURN(metrics, Scrape(server.metrics_address()));
    sample = ToSample(metrics);
  } while (sample.staging_bytes > 0 && absl::Now() < deadline);
  sample.resident_bytes = server.ResidentBytes();
  return sample;
}

std::string SamplesTable(absl::Span<const SoakSample> samples, size_t lines) {
  std::string text =
      "| requests | sent MiB | resident MiB | staging in use | queue | rejected | threads | open "
      "files | copied in / sent | copied out |\n|---|---|---|---|---|---|---|---|---|---|\n";
  const size_t step = std::max<size_t>(1, samples.size() / std::max<size_t>(1, lines));
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i % step != 0 && i + 1 != samples.size()) continue;
    const SoakSample& s = samples[i];
    const double sent = static_cast<double>(s.input_bytes - samples[0].input_bytes);
    const double copied = static_cast<double>(s.copied_in_bytes - samples[0].copied_in_bytes);
    absl::StrAppendFormat(&text, "| %d | %.0f | %.2f | %d | %d | %d | %d | %d | %s | %d |\n",
                          s.requests, sent / kMib, static_cast<double>(s.resident_bytes) / kMib,
                          s.staging_bytes, s.queue_depth, s.rejected, s.threads, s.open_fds,
                          sent > 0 ? absl::StrFormat("%.4f", copied / sent) : "–",
                          s.copied_out_bytes);
  }
  return text;
}

}  // namespace warpcall::bench
