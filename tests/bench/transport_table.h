// Results of the transport benchmark, and their tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/bench/transport_cases.h"

namespace warpcall::bench {

struct Figures {
  int64_t requests = 0;
  double p50_us = 0;  // percentiles within 0.8 %
  double p99_us = 0;
  double p999_us = 0;
  double requests_per_second = 0;
  double gigabytes_per_second = 0;  // each way
  double server_cpu_us = 0;         // per request
};

struct Row {
  Point point;
  Contender contender;
  Figures figures;
};

// Everything that was measured, in order.
class Results {
 public:
  void Add(Row row) { rows_.push_back(std::move(row)); }

  absl::Span<const Row> rows() const { return rows_; }
  // Null when it was not measured.
  const Figures* Find(const Point& point, const Contender& contender) const;
  // The better of the ByteBuffer echoes at `point`, rate and p50 each for itself.
  std::optional<double> EchoRequestsPerSecond(const Point& point) const;
  std::optional<double> EchoP50Us(const Point& point) const;

 private:
  std::vector<Row> rows_;
};

// Up to this size a request's p50 is compared with the echo's by difference.
inline constexpr size_t kSmallBytesMax = size_t{64} << 10;

// Markdown: the heading, and the lines of all contenders at `point`.
std::string TableHeading();
std::string TableLines(const Results& results, const Point& point);

// The shorter table of BENCHMARKS.md: one and eight connections over TCP side by side, and a
// sentence about small requests over a Unix socket.
inline constexpr int kBenchmarksConnections = 8;
std::string BenchmarksTable(const Results& results);

// "64 B", "16 MiB"; bytes where no unit divides them.
std::string SizeText(size_t bytes);

}  // namespace warpcall::bench
