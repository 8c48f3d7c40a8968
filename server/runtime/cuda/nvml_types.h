// NVIDIA's management library (NVML) as far as the monitor uses it, declared by hand: nvml.h comes
// with a toolkit component that building the server does not need. tests/gpu/nvml_check.cc holds
// every line of it against nvml.h where there is one.
#pragma once

#include <cstdint>

namespace warpcall::nvml {

using Return = int;  // nvmlReturn_t
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kTimeout = 10;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr Return kGpuIsLost = 15;

// Handles; opaque.
using Device = struct DeviceTag*;
using EventSet = struct EventSetTag*;
using GpmSample = struct GpmSampleTag*;

inline constexpr int kTemperatureGpu = 0;                        // nvmlTemperatureSensors_t
inline constexpr unsigned long long kEventXidCriticalError = 8;  // nvmlEventType...
inline constexpr int kClockSm = 1;                               // nvmlClockType_t
inline constexpr int kClockMemory = 2;
inline constexpr unsigned int kDriverVersionBytes = 80;
inline constexpr unsigned int kUuidBytes = 96;

// nvmlClocksThrottleReason...: bits.
inline constexpr unsigned long long kThrottleSwPowerCap = 0x4;
inline constexpr unsigned long long kThrottleHwSlowdown = 0x8;
inline constexpr unsigned long long kThrottleSyncBoost = 0x10;
inline constexpr unsigned long long kThrottleSwThermal = 0x20;
inline constexpr unsigned long long kThrottleHwThermal = 0x40;
inline constexpr unsigned long long kThrottleHwPowerBrake = 0x80;

struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
// Neither an idle GPU nor clocks that somebody has set are among them.
inline constexpr ThrottleReason kThrottleReasons[] = {
    {kThrottleSwPowerCap, "power cap"},
    {kThrottleHwSlowdown, "hardware slowdown"},
    {kThrottleSyncBoost, "sync boost"},
    {kThrottleSwThermal, "software thermal slowdown"},
    {kThrottleHwThermal, "hardware thermal slowdown"},
    {kThrottleHwPowerBrake, "power brake"},
};

struct EventData {  // nvmlEventData_t
  Device device;
  unsigned long long type;
  unsigned long long data;  // the Xid number
  unsigned int gpu_instance_id;
  unsigned int compute_instance_id;
};

struct GpmSupport {  // nvmlGpmSupport_t
  unsigned int version;
  unsigned int is_supported_device;
};
inline constexpr unsigned int kGpmSupportVersion = 1;

// nvmlGpmMetricId_t; all of these in percent.
inline constexpr unsigned int kGpmSmUtilisation = 2;
inline constexpr unsigned int kGpmSmOccupancy = 3;
inline constexpr unsigned int kGpmAnyTensorUtilisation = 5;
inline constexpr unsigned int kGpmDramBandwidthUtilisation = 10;

struct GpmMetric {  // nvmlGpmMetric_t
  unsigned int id;
  Return result;
  double value;
  const char* short_name;
  const char* long_name;
  const char* unit;
};

// nvmlGpmMetricsGet_t::metrics is NVML_GPM_METRIC_MAX long, 98 to 477 as drivers grew. Only `count`
// entries are used; ours is no shorter than the longest.
inline constexpr int kGpmMetricsMax = 512;

struct GpmMetricsGet {
  unsigned int version;
  unsigned int count;
  GpmSample sample1;
  GpmSample sample2;
  GpmMetric metrics[kGpmMetricsMax];
};
inline constexpr unsigned int kGpmMetricsGetVersion = 1;

}  // namespace warpcall::nvml
