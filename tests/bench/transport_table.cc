#include "tests/bench/transport_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace warpcall::bench {
namespace {

constexpr char kAbsent[] = "–";

// The best value of a figure among the ByteBuffer echoes at a point.
template <typename Better>
std::optional<double> BestEcho(absl::Span<const Row> rows, const Point& point,
                               double Figures::*figure, Better better) {
  std::optional<double> best;
  for (const Row& row : rows) {
    if (!(row.point == point) || !IsEcho(row.contender.kind)) continue;
    const double value = row.figures.*figure;
    if (!best.has_value() || better(value, *best)) best = value;
  }
  return best;
}

std::string RatioText(double rate, std::optional<double> echo_rate) {
  if (!echo_rate.has_value() || *echo_rate <= 0) return kAbsent;
  return absl::StrFormat("%.2f", rate / *echo_rate);
}

std::string DifferenceText(const Row& row, std::optional<double> echo_p50_us) {
  if (row.point.bytes > kSmallBytesMax || !echo_p50_us.has_value()) return kAbsent;
  return absl::StrFormat("%+.1f", row.figures.p50_us - *echo_p50_us);
}

std::string ServerCpuText(const Row& row) {
  if (IsPeer(row.contender.kind)) return kAbsent;
  return absl::StrFormat("%.1f", row.figures.server_cpu_us);
}

std::string BenchmarksCells(const Results& results, const Point& point,
                            const Contender& contender) {
  const Figures* figures = results.Find(point, contender);
  if (figures == nullptr) return absl::StrJoin(std::vector<std::string>(4, kAbsent), " | ");
  return absl::StrFormat(
      "%.1f | %.0f | %.3f | %s", figures->p50_us, figures->requests_per_second,
      figures->gigabytes_per_second,
      RatioText(figures->requests_per_second, results.EchoRequestsPerSecond(point)));
}

// "64 B: ByteBuffer echo 44.1, warpcall identity 60.2"
std::string UnixP50Text(const Results& results, size_t bytes) {
  std::vector<std::string> texts;
  for (const Row& row : results.rows()) {
    if (row.point == Point{Transport::kUnix, 1, bytes})
      texts.push_back(absl::StrFormat("%s %.1f", ContenderName(row.contender), row.figures.p50_us));
  }
  if (texts.empty()) return "";
  return absl::StrCat(SizeText(bytes), ": ", absl::StrJoin(texts, ", "));
}

}  // namespace

const Figures* Results::Find(const Point& point, const Contender& contender) const {
  for (const Row& row : rows_)
    if (row.point == point && row.contender == contender) return &row.figures;
  return nullptr;
}

std::optional<double> Results::EchoRequestsPerSecond(const Point& point) const {
  return BestEcho(rows_, point, &Figures::requests_per_second, std::greater<>());
}

std::optional<double> Results::EchoP50Us(const Point& point) const {
  return BestEcho(rows_, point, &Figures::p50_us, std::less<>());
}

std::string TableHeading() {
  return "| transport | connections | bytes | what | p50 us | p99 us | p99.9 us | requests/s | "
         "GB/s each way | of the echo's requests/s | p50 - echo's, us | server CPU us/request |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
}

std::string TableLines(const Results& results, const Point& point) {
  const std::optional<double> echo_rate = results.EchoRequestsPerSecond(point);
  const std::optional<double> echo_p50_us = results.EchoP50Us(point);
  std::string text;
  for (const Row& row : results.rows()) {
    if (!(row.point == point)) continue;
    const Figures& f = row.figures;
    absl::StrAppendFormat(&text,
                          "| %s | %d | %d | %s | %.1f | %.1f | %.1f | %.1f | %.3f | %s | %s | %s "
                          "|\n",
                          TransportName(point.transport), point.connections, point.bytes,
                          ContenderName(row.contender), f.p50_us, f.p99_us, f.p999_us,
                          f.requests_per_second, f.gigabytes_per_second,
                          RatioText(f.requests_per_second, echo_rate),
                          DifferenceText(row, echo_p50_us), ServerCpuText(row));
  }
  return text;
}

std::string BenchmarksTable(const Results& results) {
  std::string text = absl::StrFormat(
      "| bytes | what | p50 us | requests/s | GB/s each way | of the echo | %1$d connections: p50 "
      "us | requests/s | GB/s each way | of the echo "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n",
      kBenchmarksConnections);
  std::vector<size_t> small_bytes;
  for (const Row& row : results.rows()) {
    const size_t bytes = row.point.bytes;
    const bool small = bytes <= kSmallBytesMax;
    if (small && std::count(small_bytes.begin(), small_bytes.end(), bytes) == 0)
      small_bytes.push_back(bytes);
    if (!(row.point == Point{Transport::kTcp, 1, bytes})) continue;
    absl::StrAppend(
        &text, "| ", SizeText(bytes), " | ", ContenderName(row.contender), " | ",
        BenchmarksCells(results, row.point, row.contender), " | ",
        BenchmarksCells(results, {Transport::kTcp, kBenchmarksConnections, bytes}, row.contender),
        " |\n");
  }
  std::vector<std::string> sentences;
  for (size_t bytes : small_bytes)
    if (std::string one = UnixP50Text(results, bytes); !one.empty()) sentences.push_back(one);
  if (!sentences.empty())
    absl::StrAppend(&text, "\nOver a Unix socket, one connection, p50 in us: ",
                    absl::StrJoin(sentences, "; "), ".\n");
  return text;
}

std::string SizeText(size_t bytes) {
  constexpr size_t kKib = 1024;
  constexpr size_t kMib = kKib * kKib;
  if (bytes >= kMib && bytes % kMib == 0) return absl::StrCat(bytes / kMib, " MiB");
  if (bytes >= kKib && bytes % kKib == 0) return absl::StrCat(bytes / kKib, " KiB");
  return absl::StrCat(bytes, " B");
}

}  // namespace warpcall::bench
