// Readings that a GPU reports about itself, from whichever source.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace warpcall {

// Readings of about the last second. A value that GPU or driver do not report is absent, never 0.
struct GpuReading {
  std::string device;  // "cuda:0"
  // Shares of the time between two samples, 0 to 1, averaged over the GPU.
  std::optional<double> sm_active_ratio;       // multiprocessors with work
  std::optional<double> sm_occupancy_ratio;    // resident warps over the most possible
  std::optional<double> dram_bandwidth_ratio;  // bytes moved over the most possible
  std::optional<double> tensor_active_ratio;   // any tensor instruction
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_mhz;
  // Limits of the clocks and whether each is active: {"power cap", true}. Empty: not reported.
  std::map<std::string, bool> throttled;
  // How often the driver reported each critical error since the monitor began, by Xid number.
  std::map<int64_t, int64_t> xid_errors;
  std::string uuid = {};  // "GPU-" and 32 digits; empty: not reported
};

}  // namespace warpcall
