// NVML, loaded at run time.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/runtime/cuda/nvml_types.h"

namespace warpcall::nvml {

// NVIDIA's functions under their own names, less prefix and version.
struct Api {
  // NOLINTBEGIN(readability-identifier-naming)
  Return (*Init)();
  Return (*Shutdown)();
  const char* (*ErrorString)(Return result);
  Return (*DeviceGetHandleByPciBusId)(const char* pci_bus_id, Device* device);

  // Null where the driver has none.
  Return (*DeviceGetUuid)(Device device, char* uuid, unsigned int bytes);
  Return (*DeviceGetPowerUsage)(Device device, unsigned int* milliwatts);
  Return (*DeviceGetTotalEnergyConsumption)(Device device, unsigned long long* millijoules);
  Return (*DeviceGetTemperature)(Device device, int sensor, unsigned int* celsius);
  Return (*DeviceGetClockInfo)(Device device, int clock, unsigned int* mhz);
  Return (*DeviceGetDefaultApplicationsClock)(Device device, int clock, unsigned int* mhz);
  Return (*DeviceGetCurrentClocksThrottleReasons)(Device device, unsigned long long* reasons);
  Return (*SystemGetDriverVersion)(char* version, unsigned int bytes);
  Return (*EventSetCreate)(EventSet* set);
  Return (*EventSetFree)(EventSet set);
  Return (*EventSetWait)(EventSet set, EventData* data, unsigned int timeout_ms);
  Return (*DeviceRegisterEvents)(Device device, unsigned long long types, EventSet set);
  Return (*GpmQueryDeviceSupport)(Device device, GpmSupport* support);
  Return (*GpmSampleAlloc)(GpmSample* sample);
  Return (*GpmSampleFree)(GpmSample sample);
  Return (*GpmSampleGet)(Device device, GpmSample sample);
  Return (*GpmMetricsGet)(GpmMetricsGet* metrics);
  // NOLINTEND(readability-identifier-naming)
};

// Opens `file`. UNIMPLEMENTED says what is missing and why.
absl::StatusOr<Api> Open(const char* file);

// The driver's.
inline constexpr char kFile[] = "libnvidia-ml.so.1";

// "Not Supported (3)".
std::string Describe(const Api& api, Return result);

}  // namespace warpcall::nvml
