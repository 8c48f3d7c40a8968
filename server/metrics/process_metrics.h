// The process_* series that Prometheus' client libraries agree on, read from /proc.
// https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/metric_family.h"

namespace warpcall {

// The fields of /proc/PID/stat that are shown (proc(5)), in the kernel's units.
struct ProcStat {
  uint64_t user_ticks = 0;
  uint64_t system_ticks = 0;
  uint64_t threads = 0;
  uint64_t start_ticks_since_boot = 0;
  uint64_t virtual_bytes = 0;
  uint64_t resident_pages = 0;
};

// Null when `line` is no such line. The command name in it may hold spaces and parentheses.
std::optional<ProcStat> ParseProcStat(absl::string_view line);

struct ProcessStats {
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double start_time_seconds = 0;  // since 1970
  double open_fds = 0;
  double max_fds = 0;
  double threads = 0;
};

// Figures of this process; null where /proc cannot be read.
std::optional<ProcessStats> ReadProcessStats();

void AppendProcessFamilies(const ProcessStats& stats,
                           std::vector<prometheus::MetricFamily>* families);

// The phases of a server's life, in their order.
enum class ServerPhase : uint8_t { kStarting, kServing, kLameDuck, kDraining };

// "starting", "serving", "lame_duck", "draining".
const char* ServerPhaseName(ServerPhase phase);
void AppendServerPhase(ServerPhase phase, std::vector<prometheus::MetricFamily>* families);

// Lines that are missing from this process's log.
void AppendLogLinesDropped(int64_t lines, std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
