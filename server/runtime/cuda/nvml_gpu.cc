#include "server/runtime/cuda/nvml_gpu.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/log/log.h"

namespace warpcall::nvml {
namespace {

struct Ratio {
  unsigned int metric;
  std::optional<double> GpuReading::*field;
  const char* what;
};
constexpr Ratio kRatios[] = {
    {kGpmSmUtilisation, &GpuReading::sm_active_ratio, "the share of active multiprocessors"},
    {kGpmSmOccupancy, &GpuReading::sm_occupancy_ratio, "occupancy"},
    {kGpmDramBandwidthUtilisation, &GpuReading::dram_bandwidth_ratio, "use of memory bandwidth"},
    {kGpmAnyTensorUtilisation, &GpuReading::tensor_active_ratio, "use of tensor cores"},
};

bool IsUnsupported(Return result) { return result == kNotSupported || result == kFunctionNotFound; }

}  // namespace

Gpu::Gpu(const Api& api, std::string name, const std::string& pci_bus_id)
    : api_(api), name_(std::move(name)) {
  if (!Succeeded(api_.DeviceGetHandleByPciBusId(pci_bus_id.c_str(), &device_), pci_bus_id)) {
    device_ = nullptr;
    return;
  }
  ReadUuid();
  StartSampling();
}

Gpu::~Gpu() {
  for (GpmSample sample : {previous_, current_})
    if (sample != nullptr) api_.GpmSampleFree(sample);
}

bool Gpu::Succeeded(Return result, absl::string_view what) {
  if (result == kSuccess) return true;
  if (IsUnsupported(result)) unsupported_.emplace(what);
  if (logged_.emplace(what).second)
    Log(LogLevel::kInfo, "NVML does not tell",
        {{"device", name_}, {"what", what}, {"error", Describe(api_, result)}});
  return false;
}

// It never changes.
void Gpu::ReadUuid() {
  char uuid[kUuidBytes] = "";
  const Return result = api_.DeviceGetUuid == nullptr
                            ? kFunctionNotFound
                            : api_.DeviceGetUuid(device_, uuid, sizeof(uuid));
  if (Succeeded(result, "its UUID")) uuid_ = uuid;
}

void Gpu::StartSampling() {
  constexpr absl::string_view kWhat = "ratios of use (GPM: from Hopper on, driver 525 on)";
  const bool has_functions = api_.GpmQueryDeviceSupport != nullptr &&
                             api_.GpmSampleAlloc != nullptr && api_.GpmSampleFree != nullptr &&
                             api_.GpmSampleGet != nullptr && api_.GpmMetricsGet != nullptr;
  if (!has_functions) {
    Succeeded(kFunctionNotFound, kWhat);
    return;
  }
  GpmSupport support = {kGpmSupportVersion, 0};
  if (!Succeeded(api_.GpmQueryDeviceSupport(device_, &support), kWhat)) return;
  samples_ = Succeeded(support.is_supported_device != 0 ? kSuccess : kNotSupported, kWhat) &&
             Succeeded(api_.GpmSampleAlloc(&previous_), kWhat) &&
             Succeeded(api_.GpmSampleAlloc(&current_), kWhat);
  if (samples_) metrics_ = std::make_unique<GpmMetricsGet>();
}

template <typename Call>
std::optional<double> Gpu::ReadUnsigned(absl::string_view what, Call call) {
  if (unsupported_.contains(what)) return std::nullopt;
  unsigned int value = 0;
  if (!Succeeded(call(&value), what)) return std::nullopt;
  return value;
}

void Gpu::ReadRatios(GpuReading* reading) {
  constexpr absl::string_view kWhat = "a sample of its use";
  if (unsupported_.contains(kWhat)) return;
  if (!Succeeded(api_.GpmSampleGet(device_, current_), kWhat)) {
    has_sample_ = false;
    return;
  }
  const bool has_two = std::exchange(has_sample_, true);
  std::swap(previous_, current_);
  if (!has_two) return;
  GpmMetricsGet& get = *metrics_;
  get.version = kGpmMetricsGetVersion;
  get.count = 0;
  get.sample1 = current_;  // the older one, after the swap
  get.sample2 = previous_;
  for (const Ratio& ratio : kRatios) {
    get.metrics[get.count] = {};
    get.metrics[get.count++].id = ratio.metric;
  }
  if (!Succeeded(api_.GpmMetricsGet(&get), "utilization between two samples")) return;
  for (unsigned int i = 0; i < get.count; ++i) {
    const GpmMetric& metric = get.metrics[i];
    if (!Succeeded(metric.result, kRatios[i].what) || !std::isfinite(metric.value)) continue;
    reading->*kRatios[i].field = std::clamp(metric.value / 100, 0.0, 1.0);
  }
}

GpuReading Gpu::Read() {
  GpuReading reading;
  reading.device = name_;
  if (device_ == nullptr) return reading;
  reading.uuid = uuid_;
  reading.power_watts = ReadUnsigned("power", [this](unsigned int* milliwatts) {
    return api_.DeviceGetPowerUsage == nullptr ? kFunctionNotFound
                                               : api_.DeviceGetPowerUsage(device_, milliwatts);
  });
  if (reading.power_watts.has_value()) *reading.power_watts /= 1000;
  reading.temperature_celsius = ReadUnsigned("temperature", [this](unsigned int* celsius) {
    return api_.DeviceGetTemperature == nullptr
               ? kFunctionNotFound
               : api_.DeviceGetTemperature(device_, kTemperatureGpu, celsius);
  });
  ReadClocks(&reading);
  if (samples_) ReadRatios(&reading);
  return reading;
}

void Gpu::ReadClocks(GpuReading* reading) {
  reading->sm_clock_mhz = ReadUnsigned("clock", [this](unsigned int* mhz) {
    return api_.DeviceGetClockInfo == nullptr ? kFunctionNotFound
                                              : api_.DeviceGetClockInfo(device_, kClockSm, mhz);
  });
  constexpr absl::string_view kWhat = "reasons for lowered clocks";
  if (unsupported_.contains(kWhat)) return;
  unsigned long long reasons = 0;
  const Return result = api_.DeviceGetCurrentClocksThrottleReasons == nullptr
                            ? kFunctionNotFound
                            : api_.DeviceGetCurrentClocksThrottleReasons(device_, &reasons);
  if (!Succeeded(result, kWhat)) return;
  for (const ThrottleReason& reason : kThrottleReasons)
    reading->throttled[reason.name] = (reasons & reason.bit) != 0;
}

void Gpu::Register(EventSet events) {
  if (device_ != nullptr)
    Succeeded(api_.DeviceRegisterEvents(device_, kEventXidCriticalError, events), "Xid errors");
}

}  // namespace warpcall::nvml
