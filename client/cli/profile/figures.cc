#include "client/cli/profile/figures.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace warpcall::cli {
namespace {

using client::ProfileRow;

// Copy speed as a share of peak bandwidth, which counters refer to: a copy reaches 4.27 of an
// H200's 4.8 TB/s.
constexpr double kCopyOfPeak = 0.9;
constexpr char kThreadName[] = "cpu thread ";

// Mean of a share that kernel rows report, weighted by time; -1 where none reports it.
double Weighted(const client::ProfileReport& report, double (ProfileRow::*share)() const) {
  double sum = 0;
  double time = 0;
  for (const ProfileRow& row : report.rows()) {
    if (row.kind() != kKernelRow || (row.*share)() < 0) continue;
    sum += (row.*share)() * static_cast<double>(row.total_ns());
    time += static_cast<double>(row.total_ns());
  }
  return time > 0 ? sum / time : -1;
}

// Returns the events per run of the named counter; -1 if the profile lacks it.
double CountOf(const client::ProfileReport& report, const char* name,
               int64_t (ProfileRow::*count)() const) {
  for (const ProfileRow& row : report.rows())
    if (row.kind() == kCounterRow && row.name() == name)
      return static_cast<double>((row.*count)()) / report.iterations();
  return -1;
}

double PerSecond(double amount, double ns) {
  return amount >= 0 && ns > 0 ? amount * 1e9 / ns : -1;
}

double Ratio(double part, double whole) { return part >= 0 && whole > 0 ? part / whole : -1; }

void AddTimes(const client::ProfileReport& report, Figures* figures) {
  for (const ProfileRow& row : report.rows()) {
    const double ns = static_cast<double>(row.total_ns()) / report.iterations();
    if (row.kind() == kKernelRow) {
      figures->kernel_ns += ns;
      figures->kernels += static_cast<double>(row.calls()) / report.iterations();
    } else if (row.kind() == kGapRow) {
      figures->gap_ns += ns;
    } else if (row.kind() == kCopyRow || (row.kind() == kHostRow && row.name() == "copy_in")) {
      figures->transfer_ns += ns;
    } else if (row.kind() == kHostRow && row.name() == "run") {
      figures->run_ns = ns;
    }
  }
}

void AddThreads(const Profiled& profiled, Figures* figures) {
  const double all_ns = figures->run_ns * profiled.device.multiprocessors;
  double busy_ns = 0;
  double waiting_ns = 0;
  bool known = false;
  for (const ProfileRow& row : profiled.report.rows()) {
    if (row.kind() != kThreadRow) continue;
    known = true;
    const double ns = static_cast<double>(row.total_ns()) / profiled.report.iterations();
    (absl::StartsWith(row.name(), kThreadName) ? busy_ns : waiting_ns) += ns;
  }
  if (!known) return;
  figures->threads_busy = Ratio(busy_ns, all_ns);
  // The system books a wait when it is over, also one that began before the runs.
  figures->threads_waiting =
      std::min(Ratio(waiting_ns, all_ns), std::max(1 - figures->threads_busy, 0.0));
}

// Returns the bytes moved to and from memory by the counters; -1 without counters.
double CountedBytes(const client::ProfileReport& report, const Figures& figures) {
  const double missed = CountOf(report, "cache misses", &ProfileRow::bytes);
  if (missed >= 0) return missed;
  if (figures.dram_throughput < 0 || figures.ceiling_bytes_per_second <= 0) return -1;
  return figures.dram_throughput * figures.ceiling_bytes_per_second / kCopyOfPeak *
         figures.kernel_ns / 1e9;
}

}  // namespace

Figures FiguresOf(const Profiled& profiled) {
  Figures figures;
  const client::ProfileReport& report = profiled.report;
  if (report.iterations() <= 0) return figures;
  AddTimes(report, &figures);
  if (profiled.device.kind == kCpuKind) AddThreads(profiled, &figures);
  figures.achieved_occupancy = Weighted(report, &ProfileRow::achieved_occupancy);
  figures.sm_throughput = Weighted(report, &ProfileRow::sm_throughput);
  figures.dram_throughput = Weighted(report, &ProfileRow::dram_throughput);
  figures.instructions = CountOf(report, "instructions", &ProfileRow::calls);
  figures.cycles = CountOf(report, "cycles", &ProfileRow::calls);
  if (profiled.device.measured_bandwidth_bytes_per_second > 0)
    figures.ceiling_bytes_per_second = profiled.device.measured_bandwidth_bytes_per_second;
  if (profiled.plan_missing.empty()) {
    figures.least_bytes = static_cast<double>(profiled.plan.launch().bytes_moved());
    figures.flops = static_cast<double>(profiled.plan.launch().flops());
  }
  figures.bytes_per_second = PerSecond(figures.least_bytes, figures.kernel_ns);
  figures.flops_per_second = PerSecond(figures.flops, figures.kernel_ns);
  figures.fraction_of_ceiling = Ratio(figures.bytes_per_second, figures.ceiling_bytes_per_second);
  figures.counted_bytes = CountedBytes(report, figures);
  figures.passes = Ratio(figures.counted_bytes, figures.least_bytes);
  figures.passes_max = figures.fraction_of_ceiling > 0 ? 1 / figures.fraction_of_ceiling : -1;
  return figures;
}

bool IsInconclusive(const Profiled& profiled, const Figures& figures) {
  return !profiled.report.inconclusive().empty() &&
         (profiled.device.kind == kCpuKind ||
          figures.gap_ns + figures.transfer_ns > figures.kernel_ns);
}

std::string PercentOf(double share) {
  return share < 0 ? "-" : absl::StrFormat("%.1f%%", share * 100);
}

bool IsOfDevice(const ProfileRow& row) {
  return row.kind() != kHostRow && row.kind() != kThreadRow && row.kind() != kCounterRow;
}

}  // namespace warpcall::cli
