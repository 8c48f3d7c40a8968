#include "client/cli/bench/conditions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace warpcall::cli {
namespace {

// Clocks that are as close as this are alike: a GPU sets them in steps of 15 MHz, by temperature.
constexpr double kClockTolerance = 0.03;

bool ClocksDiffer(int64_t a, int64_t b) {
  if (a <= 0 || b <= 0) return false;
  const auto apart = static_cast<double>(std::max(a, b) - std::min(a, b));
  return apart > kClockTolerance * static_cast<double>(std::max(a, b));
}

std::string Megahertz(int64_t low, int64_t high) {
  if (high <= 0) return "";
  return low > 0 && low != high ? absl::StrCat(low, "-", high, " MHz") : absl::StrCat(high, " MHz");
}

std::string Date(int64_t unix_ns) {
  if (unix_ns <= 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

class Lines {
 public:
  // Differs where both are known and not the same.
  void Add(absl::string_view name, const std::string& before, const std::string& after) {
    Add(name, before, after, !before.empty() && !after.empty() && before != after);
  }
  void Add(absl::string_view name, const std::string& before, const std::string& after,
           bool differs) {
    if (before.empty() && after.empty()) return;
    lines_.push_back({std::string(name), before, after, differs});
  }
  std::vector<ConditionLine> Take() { return std::move(lines_); }

 private:
  std::vector<ConditionLine> lines_;
};

std::string Count(int64_t value) { return value > 0 ? absl::StrCat(value) : ""; }

}  // namespace

std::vector<ConditionLine> Compare(const Conditions& before, const Conditions& after) {
  Lines lines;
  lines.Add("host", before.host, after.host);
  lines.Add("device", before.device, after.device);
  lines.Add("description", before.description, after.description);
  lines.Add("driver", before.driver, after.driver);
  lines.Add("CUDA", before.cuda, after.cuda);
  lines.Add("server", before.server_version, after.server_version);
  lines.Add("client", before.client_version, after.client_version);
  lines.Add("SM clock", Megahertz(before.sm_clock_mhz_min, before.sm_clock_mhz_max),
            Megahertz(after.sm_clock_mhz_min, after.sm_clock_mhz_max),
            ClocksDiffer(before.sm_clock_mhz_min, after.sm_clock_mhz_min) ||
                ClocksDiffer(before.sm_clock_mhz_max, after.sm_clock_mhz_max));
  lines.Add("memory clock", Megahertz(0, before.memory_clock_mhz),
            Megahertz(0, after.memory_clock_mhz),
            ClocksDiffer(before.memory_clock_mhz, after.memory_clock_mhz));
  lines.Add("throttled", before.throttled, after.throttled, before.throttled != after.throttled);
  lines.Add("samples dropped", Count(before.samples_dropped), Count(after.samples_dropped), false);
  lines.Add("started", Date(before.started_unix_ns), Date(after.started_unix_ns), false);
  return lines.Take();
}

}  // namespace warpcall::cli
