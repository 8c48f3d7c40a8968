#include "server/runtime/cuda/nvml_conditions.h"

#include "absl/strings/str_cat.h"

namespace warpcall::nvml {

absl::StatusOr<std::unique_ptr<GpuConditions>> GpuConditions::Open(const Api& api,
                                                                   const std::string& pci_bus_id) {
  if (const Return result = api.Init(); result != kSuccess)
    return absl::UnimplementedError(absl::StrCat("NVML does not start: ", Describe(api, result)));
  std::unique_ptr<GpuConditions> reader(new GpuConditions(api));
  if (const Return result = api.DeviceGetHandleByPciBusId(pci_bus_id.c_str(), &reader->device_);
      result != kSuccess)
    return absl::UnimplementedError(
        absl::StrCat("NVML does not know ", pci_bus_id, ": ", Describe(api, result)));
  return reader;
}

GpuConditions::~GpuConditions() { api_.Shutdown(); }

DeviceConditions GpuConditions::Read() {
  const auto unsigned_of = [&](auto function, auto... arguments) -> unsigned int {
    unsigned int value = 0;
    if (function == nullptr || function(device_, arguments..., &value) != kSuccess) return 0;
    return value;
  };
  DeviceConditions conditions;
  const auto clock = [&](auto function, int kind) {
    return static_cast<int32_t>(unsigned_of(function, kind));
  };
  conditions.sm_clock_mhz = clock(api_.DeviceGetClockInfo, kClockSm);
  conditions.memory_clock_mhz = clock(api_.DeviceGetClockInfo, kClockMemory);
  conditions.default_sm_clock_mhz = clock(api_.DeviceGetDefaultApplicationsClock, kClockSm);
  conditions.temperature_celsius = clock(api_.DeviceGetTemperature, kTemperatureGpu);
  conditions.power_watts = unsigned_of(api_.DeviceGetPowerUsage) / 1e3;
  unsigned long long millijoules = 0;
  if (api_.DeviceGetTotalEnergyConsumption != nullptr &&
      api_.DeviceGetTotalEnergyConsumption(device_, &millijoules) == kSuccess)
    conditions.energy_joules = static_cast<double>(millijoules) / 1e3;
  unsigned long long reasons = 0;
  if (api_.DeviceGetCurrentClocksThrottleReasons != nullptr &&
      api_.DeviceGetCurrentClocksThrottleReasons(device_, &reasons) == kSuccess)
    for (const ThrottleReason& reason : kThrottleReasons)
      if ((reasons & reason.bit) != 0) conditions.throttle_reasons.emplace_back(reason.name);
  char driver[kDriverVersionBytes] = {};
  if (api_.SystemGetDriverVersion != nullptr &&
      api_.SystemGetDriverVersion(driver, sizeof(driver)) == kSuccess)
    conditions.driver = driver;
  return conditions;
}

}  // namespace warpcall::nvml
