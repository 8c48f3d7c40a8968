// What the operators' port shows of the server on its page and in /status.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/engine/metrics_sink.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/traffic.h"

namespace warpcall {

// Labels of warpcall_build_info.
struct BuildInfo {
  std::string version;   // "0.1.0"
  std::string compiler;  // "gcc 12.2.0"
  std::string cuda;      // "13.0"; empty in a build without CUDA
};

// A Benchmark, Tune, Profile, Describe or Push that has ended.
struct RecentInspection {
  int64_t unix_ns = 0;    // when it ended
  std::string method;     // "benchmark"
  std::string kernel;     // empty: not known
  std::string device;     // empty: none was chosen
  std::string push;       // the name of a pushed kernel
  std::string principal;  // the caller's name; empty: none, or the log has no line of the call
  std::string outcome;    // a push's verdict, else the status code: "PASSED", "OK"
  double seconds = 0;     // how long it took
};

struct DeviceStatus {
  std::string name;
  bool is_open = true;  // false: it could not be opened, and the snapshot says nothing
  DeviceSnapshot snapshot;
};

// The implementation that "auto" has run most since the server began. Where it has run none: the
// first one in order that this machine can run, which a measurement or a problem may overrule.
struct AutoStatus {
  std::string implementation;  // "cuda"; empty: none can run
  uint64_t requests = 0;       // that it ran by "auto"
  uint64_t of = 0;             // requests that left the choice to "auto"
};

struct KernelStatus {
  std::string name;  // empty: requests that were refused before their kernel was known
  AutoStatus auto_choice;
  uint64_t requests = 0;      // since the server began
  TrafficCounts last_minute;  // see ServerStatus::window_seconds
};

// Texts of callers may be anything, but are short: see kStatusNameBytesMax.
struct ServerStatus {
  BuildInfo build;
  std::string hostname;  // of the server's machine, or of its container
  ServerPhase phase = ServerPhase::kStarting;
  bool is_ready = false;
  std::string readiness;  // the text of /readyz
  double uptime_seconds = 0;
  int64_t unix_ns = 0;  // the time of these facts
  std::vector<DeviceStatus> devices;
  double window_seconds = 0;          // the length of `last_minute`
  std::vector<KernelStatus> kernels;  // those with the most requests of the last minute first
  std::vector<RecentInspection> inspections;  // the last ones, newest first
};

// Maximum numbers of entries shown; page and JSON report how many more there are. These limits
// bound both to kStatusBytesMax.
inline constexpr size_t kStatusKernelsMax = 256;
inline constexpr size_t kStatusDevicesMax = 64;
inline constexpr size_t kStatusInspectionsMax = 10;
// Longer texts are cut.
inline constexpr size_t kStatusNameBytesMax = 64;
inline constexpr size_t kStatusReadinessBytesMax = 512;
inline constexpr size_t kStatusBytesMax = size_t{512} << 10;

// Returns `text`, cut after a whole character to at most `bytes_max` bytes; a cut text ends with
// "...".
std::string CutText(absl::string_view text, size_t bytes_max = kStatusNameBytesMax);

// All kernels together.
TrafficCounts TotalOf(const ServerStatus& status);

// One HTML document without references to other hosts. Works without JavaScript; with it, replaces
// its content every few seconds.
std::string StatusPage(const ServerStatus& status);
// Headers for StatusPage, each with its line break: nothing may load but the page itself, and
// nothing run but its own script.
const std::string& StatusPageHeaders();
// The same facts as one object on a line, in ASCII; deploy/README.md lists its members. Sizes are
// in bytes, times in seconds.
std::string StatusJson(const ServerStatus& status);

}  // namespace warpcall
