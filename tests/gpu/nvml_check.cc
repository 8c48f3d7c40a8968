// Our declarations of NVML against NVIDIA's: it compiles where they agree.
//   g++ -std=c++20 -fsyntax-only -I. -I/usr/local/cuda/include tests/gpu/nvml_check.cc
#include <nvml.h>

#include <cstddef>

#include "server/runtime/cuda/nvml_types.h"

namespace warpcall::nvml {

static_assert(sizeof(Return) == sizeof(nvmlReturn_t));
static_assert(kSuccess == NVML_SUCCESS);
static_assert(kNotSupported == NVML_ERROR_NOT_SUPPORTED);
static_assert(kTimeout == NVML_ERROR_TIMEOUT);
static_assert(kFunctionNotFound == NVML_ERROR_FUNCTION_NOT_FOUND);
static_assert(kGpuIsLost == NVML_ERROR_GPU_IS_LOST);

static_assert(sizeof(Device) == sizeof(nvmlDevice_t));
static_assert(sizeof(EventSet) == sizeof(nvmlEventSet_t));
static_assert(sizeof(GpmSample) == sizeof(nvmlGpmSample_t));
static_assert(sizeof(nvmlTemperatureSensors_t) == sizeof(int));
static_assert(kTemperatureGpu == NVML_TEMPERATURE_GPU);
static_assert(kEventXidCriticalError == nvmlEventTypeXidCriticalError);
static_assert(sizeof(nvmlClockType_t) == sizeof(int));
static_assert(kClockSm == NVML_CLOCK_SM);
static_assert(kClockMemory == NVML_CLOCK_MEM);
static_assert(kDriverVersionBytes == NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
static_assert(kUuidBytes == NVML_DEVICE_UUID_V2_BUFFER_SIZE);
static_assert(kThrottleSwPowerCap == nvmlClocksThrottleReasonSwPowerCap);
static_assert(kThrottleHwSlowdown == nvmlClocksThrottleReasonHwSlowdown);
static_assert(kThrottleSyncBoost == nvmlClocksThrottleReasonSyncBoost);
static_assert(kThrottleSwThermal == nvmlClocksThrottleReasonSwThermalSlowdown);
static_assert(kThrottleHwThermal == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(kThrottleHwPowerBrake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

static_assert(sizeof(EventData) == sizeof(nvmlEventData_t));
static_assert(offsetof(EventData, device) == offsetof(nvmlEventData_t, device));
static_assert(offsetof(EventData, type) == offsetof(nvmlEventData_t, eventType));
static_assert(offsetof(EventData, data) == offsetof(nvmlEventData_t, eventData));

static_assert(sizeof(GpmSupport) == sizeof(nvmlGpmSupport_t));
static_assert(offsetof(GpmSupport, is_supported_device) ==
              offsetof(nvmlGpmSupport_t, isSupportedDevice));
static_assert(kGpmSupportVersion == NVML_GPM_SUPPORT_VERSION);

static_assert(kGpmSmUtilisation == NVML_GPM_METRIC_SM_UTIL);
static_assert(kGpmSmOccupancy == NVML_GPM_METRIC_SM_OCCUPANCY);
static_assert(kGpmAnyTensorUtilisation == NVML_GPM_METRIC_ANY_TENSOR_UTIL);
static_assert(kGpmDramBandwidthUtilisation == NVML_GPM_METRIC_DRAM_BW_UTIL);

static_assert(sizeof(GpmMetric) == sizeof(nvmlGpmMetric_t));
static_assert(offsetof(GpmMetric, id) == offsetof(nvmlGpmMetric_t, metricId));
static_assert(offsetof(GpmMetric, result) == offsetof(nvmlGpmMetric_t, nvmlReturn));
static_assert(offsetof(GpmMetric, value) == offsetof(nvmlGpmMetric_t, value));

static_assert(offsetof(GpmMetricsGet, count) == offsetof(nvmlGpmMetricsGet_t, numMetrics));
static_assert(offsetof(GpmMetricsGet, sample1) == offsetof(nvmlGpmMetricsGet_t, sample1));
static_assert(offsetof(GpmMetricsGet, sample2) == offsetof(nvmlGpmMetricsGet_t, sample2));
static_assert(offsetof(GpmMetricsGet, metrics) == offsetof(nvmlGpmMetricsGet_t, metrics));
static_assert(kGpmMetricsMax >= NVML_GPM_METRIC_MAX);
static_assert(kGpmMetricsGetVersion == NVML_GPM_METRICS_GET_VERSION);

}  // namespace warpcall::nvml
