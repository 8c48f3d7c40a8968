#include "server/runtime/cuda/nvml_api.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/shared_library.h"
#include "proto/common/status_macros.h"

namespace warpcall::nvml {

absl::StatusOr<Api> Open(const char* file) {
  ASSIGN_OR_RETURN(const cuda::SharedLibrary library,
                   cuda::SharedLibrary::Open(file,
                                             "power, temperature, use and Xid errors of "
                                             "GPUs are read with it"));
  Api api = {};
  RETURN_IF_ERROR(library.Resolve("nvmlInit_v2", &api.Init));
  RETURN_IF_ERROR(library.Resolve("nvmlShutdown", &api.Shutdown));
  RETURN_IF_ERROR(library.Resolve("nvmlErrorString", &api.ErrorString));
  RETURN_IF_ERROR(
      library.Resolve("nvmlDeviceGetHandleByPciBusId_v2", &api.DeviceGetHandleByPciBusId));
  // These leave null where there is none.
  library.Resolve("nvmlDeviceGetUUID", &api.DeviceGetUuid).IgnoreError();
  library.Resolve("nvmlDeviceGetPowerUsage", &api.DeviceGetPowerUsage).IgnoreError();
  library.Resolve("nvmlDeviceGetTotalEnergyConsumption", &api.DeviceGetTotalEnergyConsumption)
      .IgnoreError();
  library.Resolve("nvmlDeviceGetTemperature", &api.DeviceGetTemperature).IgnoreError();
  library.Resolve("nvmlDeviceGetClockInfo", &api.DeviceGetClockInfo).IgnoreError();
  library.Resolve("nvmlDeviceGetDefaultApplicationsClock", &api.DeviceGetDefaultApplicationsClock)
      .IgnoreError();
  library
      .Resolve("nvmlDeviceGetCurrentClocksThrottleReasons",
               &api.DeviceGetCurrentClocksThrottleReasons)
      .IgnoreError();
  library.Resolve("nvmlSystemGetDriverVersion", &api.SystemGetDriverVersion).IgnoreError();
  library.Resolve("nvmlEventSetCreate", &api.EventSetCreate).IgnoreError();
  library.Resolve("nvmlEventSetFree", &api.EventSetFree).IgnoreError();
  library.Resolve("nvmlEventSetWait_v2", &api.EventSetWait).IgnoreError();
  library.Resolve("nvmlDeviceRegisterEvents", &api.DeviceRegisterEvents).IgnoreError();
  library.Resolve("nvmlGpmQueryDeviceSupport", &api.GpmQueryDeviceSupport).IgnoreError();
  library.Resolve("nvmlGpmSampleAlloc", &api.GpmSampleAlloc).IgnoreError();
  library.Resolve("nvmlGpmSampleFree", &api.GpmSampleFree).IgnoreError();
  library.Resolve("nvmlGpmSampleGet", &api.GpmSampleGet).IgnoreError();
  library.Resolve("nvmlGpmMetricsGet", &api.GpmMetricsGet).IgnoreError();
  return api;
}

std::string Describe(const Api& api, Return result) {
  return absl::StrCat(api.ErrorString(result), " (", result, ")");
}

}  // namespace warpcall::nvml
