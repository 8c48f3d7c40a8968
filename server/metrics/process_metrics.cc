#include "server/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

constexpr const char* kPhaseNames[] = {"starting", "serving", "lame_duck", "draining"};

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::optional<uint64_t> BootTimeSeconds() {
  const std::string text = ReadFile("/proc/stat");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtoi(line, &seconds)) return seconds;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ProcStat> ParseProcStat(absl::string_view line) {
  const size_t name_end = line.rfind(')');
  if (name_end == absl::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(line.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  // proc(5) numbers fields from 1; the first one after the name is 3, the process's state.
  struct Wanted {
    size_t number;
    uint64_t ProcStat::*field;
  };
  constexpr Wanted kWanted[] = {
      {14, &ProcStat::user_ticks},    {15, &ProcStat::system_ticks},
      {20, &ProcStat::threads},       {22, &ProcStat::start_ticks_since_boot},
      {23, &ProcStat::virtual_bytes}, {24, &ProcStat::resident_pages},
  };
  ProcStat stat;
  for (const Wanted& wanted : kWanted) {
    const size_t index = wanted.number - 3;
    if (index >= fields.size() || !absl::SimpleAtoi(fields[index], &(stat.*wanted.field))) {
      return std::nullopt;
    }
  }
  return stat;
}

std::optional<ProcessStats> ReadProcessStats() {
  const std::optional<ProcStat> stat = ParseProcStat(ReadFile("/proc/self/stat"));
  // Once: the system moves it when the clock is set, and a start that moves tells of a restart.
  static const std::optional<uint64_t> boot_seconds = BootTimeSeconds();
  if (!stat.has_value() || !boot_seconds.has_value()) return std::nullopt;
  const double seconds_per_tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessStats result;
  result.cpu_seconds =
      static_cast<double>(stat->user_ticks + stat->system_ticks) * seconds_per_tick;
  result.resident_bytes =
      static_cast<double>(stat->resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
  result.virtual_bytes = static_cast<double>(stat->virtual_bytes);
  result.start_time_seconds = static_cast<double>(*boot_seconds) +
                              static_cast<double>(stat->start_ticks_since_boot) * seconds_per_tick;
  result.threads = static_cast<double>(stat->threads);
  result.open_fds = CountDescriptors();
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) result.max_fds = static_cast<double>(limit.rlim_cur);
  return result;
}

void AppendProcessFamilies(const ProcessStats& stats,
                           std::vector<prometheus::MetricFamily>* families) {
  using prometheus::MetricType;
  struct Shown {
    const char* name;
    const char* help;
    double ProcessStats::*field;
  };
  constexpr Shown kGauges[] = {
      {"process_resident_memory_bytes", "Resident memory.", &ProcessStats::resident_bytes},
      {"process_virtual_memory_bytes", "Address space in use.", &ProcessStats::virtual_bytes},
      {"process_start_time_seconds", "Start of the process, seconds since 1970.",
       &ProcessStats::start_time_seconds},
      {"process_open_fds", "Open file descriptors.", &ProcessStats::open_fds},
      {"process_max_fds", "File descriptors that may be open.", &ProcessStats::max_fds},
      {"process_threads", "Threads of the process.", &ProcessStats::threads},
  };
  prometheus::MetricFamily& cpu = families->emplace_back();
  cpu.name = "process_cpu_seconds_total";
  cpu.help = "CPU time of the process, user and system.";
  cpu.type = MetricType::Counter;
  cpu.metric.emplace_back().counter.value = stats.cpu_seconds;
  for (const Shown& gauge : kGauges) {
    prometheus::MetricFamily& family = families->emplace_back();
    family.name = gauge.name;
    family.help = gauge.help;
    family.type = MetricType::Gauge;
    family.metric.emplace_back().gauge.value = stats.*gauge.field;
  }
}

const char* ServerPhaseName(ServerPhase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

void AppendServerPhase(ServerPhase phase, std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily& family = families->emplace_back();
  family.name = "warpcall_server_phase";
  family.help = "1 for the phase that the server is in, 0 for the others.";
  family.type = prometheus::MetricType::Gauge;
  for (size_t i = 0; i < std::size(kPhaseNames); ++i) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"phase", kPhaseNames[i]}};
    metric.gauge.value = static_cast<size_t>(phase) == i ? 1 : 0;
  }
}

void AppendLogLinesDropped(int64_t lines, std::vector<prometheus::MetricFamily>* families) {
  prometheus::MetricFamily& family = families->emplace_back();
  family.name = "warpcall_log_lines_dropped_total";
  family.help = "Log lines dropped because nobody read the log or its disk was full.";
  family.type = prometheus::MetricType::Counter;
  family.metric.emplace_back().counter.value = static_cast<double>(lines);
}

}  // namespace warpcall
