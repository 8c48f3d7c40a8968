#include "tests/server/runtime/fake_nvml.h"

#include <cstdint>
#include <cstdio>

namespace warpcall::testing {
namespace {

FakeNvml* fake = nullptr;

// Handles are 1 + the position.
nvml::Device DeviceOf(int gpu) {
  return reinterpret_cast<nvml::Device>(static_cast<uintptr_t>(gpu + 1));
}
int IndexOf(nvml::Device device) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1;
}

struct Sample {
  int gpu = -1;
  int number = 0;
};

nvml::Return Init() {
  absl::MutexLock lock(&fake->mutex);
  if (fake->init_result == nvml::kSuccess) ++fake->sessions;
  return fake->init_result;
}

nvml::Return Shutdown() {
  absl::MutexLock lock(&fake->mutex);
  --fake->sessions;
  fake->changed.SignalAll();
  return nvml::kSuccess;
}

const char* ErrorString(nvml::Return) { return "made up"; }

nvml::Return GetHandle(const char* pci_bus_id, nvml::Device* device) {
  const std::string id = pci_bus_id;
  if (id != FakeNvml::kFirstBus && id != FakeNvml::kSecondBus) return 6;  // NVML_ERROR_NOT_FOUND
  *device = DeviceOf(id == FakeNvml::kFirstBus ? 0 : 1);
  return nvml::kSuccess;
}

nvml::Return GetUuid(nvml::Device device, char* uuid, unsigned int bytes) {
  absl::MutexLock lock(&fake->mutex);
  const FakeNvml::Gpu& gpu = fake->gpus[IndexOf(device)];
  uuid[gpu.uuid.copy(uuid, bytes - 1)] = 0;
  return gpu.uuid_result;
}

nvml::Return GetEnergy(nvml::Device device, unsigned long long* millijoules) {
  absl::MutexLock lock(&fake->mutex);
  *millijoules = fake->gpus[IndexOf(device)].energy_millijoules;
  return nvml::kSuccess;
}

nvml::Return GetPower(nvml::Device device, unsigned int* milliwatts) {
  const int gpu = IndexOf(device);
  absl::Notification* hang = nullptr;
  {
    absl::MutexLock lock(&fake->mutex);
    if (gpu == 0) ++fake->polls;
    ++fake->power_calls[gpu];
    fake->changed.SignalAll();
    if (gpu == 0) hang = fake->hang;
    *milliwatts = fake->gpus[gpu].power_milliwatts;
  }
  if (hang != nullptr) hang->WaitForNotification();
  absl::MutexLock lock(&fake->mutex);
  return fake->gpus[gpu].power_result;
}

nvml::Return GetTemperature(nvml::Device device, int, unsigned int* celsius) {
  absl::MutexLock lock(&fake->mutex);
  *celsius = fake->gpus[IndexOf(device)].temperature_celsius;
  return fake->gpus[IndexOf(device)].temperature_result;
}

nvml::Return GetClock(nvml::Device device, int clock, unsigned int* mhz) {
  absl::MutexLock lock(&fake->mutex);
  const FakeNvml::Gpu& gpu = fake->gpus[IndexOf(device)];
  *mhz = clock == nvml::kClockSm ? gpu.sm_clock_mhz : gpu.memory_clock_mhz;
  return nvml::kSuccess;
}

nvml::Return GetDefaultClock(nvml::Device device, int clock, unsigned int* mhz) {
  absl::MutexLock lock(&fake->mutex);
  *mhz = fake->gpus[IndexOf(device)].default_sm_clock_mhz;
  return clock == nvml::kClockSm && *mhz > 0 ? nvml::kSuccess : nvml::kNotSupported;
}

nvml::Return GetThrottleReasons(nvml::Device device, unsigned long long* reasons) {
  absl::MutexLock lock(&fake->mutex);
  *reasons = fake->gpus[IndexOf(device)].throttle_reasons;
  return nvml::kSuccess;
}

nvml::Return GetDriverVersion(char* version, unsigned int bytes) {
  std::snprintf(version, bytes, "580.65.06");
  return nvml::kSuccess;
}

nvml::Return CreateSet(nvml::EventSet* set) {
  absl::MutexLock lock(&fake->mutex);
  ++fake->sets_alive;
  *set = reinterpret_cast<nvml::EventSet>(uintptr_t{8});
  return nvml::kSuccess;
}

nvml::Return FreeSet(nvml::EventSet) {
  absl::MutexLock lock(&fake->mutex);
  --fake->sets_alive;
  return nvml::kSuccess;
}

nvml::Return WaitSet(nvml::EventSet, nvml::EventData* data, unsigned int) {
  absl::MutexLock lock(&fake->mutex);
  if (fake->events.empty()) return nvml::kTimeout;
  *data = fake->events.front();
  fake->events.erase(fake->events.begin());
  return nvml::kSuccess;
}

nvml::Return Register(nvml::Device device, unsigned long long types, nvml::EventSet) {
  absl::MutexLock lock(&fake->mutex);
  return types == nvml::kEventXidCriticalError ? fake->gpus[IndexOf(device)].events_result : 2;
}

nvml::Return QuerySupport(nvml::Device device, nvml::GpmSupport* support) {
  if (support->version != nvml::kGpmSupportVersion) return 25;  // ..._ARGUMENT_VERSION_MISMATCH
  absl::MutexLock lock(&fake->mutex);
  support->is_supported_device = fake->gpus[IndexOf(device)].has_gpm ? 1 : 0;
  return nvml::kSuccess;
}

nvml::Return AllocateSample(nvml::GpmSample* sample) {
  absl::MutexLock lock(&fake->mutex);
  ++fake->samples_alive;
  *sample = reinterpret_cast<nvml::GpmSample>(new Sample);
  return nvml::kSuccess;
}

nvml::Return FreeSample(nvml::GpmSample sample) {
  absl::MutexLock lock(&fake->mutex);
  --fake->samples_alive;
  delete reinterpret_cast<Sample*>(sample);
  return nvml::kSuccess;
}

nvml::Return TakeSample(nvml::Device device, nvml::GpmSample sample) {
  absl::MutexLock lock(&fake->mutex);
  *reinterpret_cast<Sample*>(sample) = {IndexOf(device), ++fake->samples_taken};
  return nvml::kSuccess;
}

nvml::Return GetMetrics(nvml::GpmMetricsGet* get) {
  absl::MutexLock lock(&fake->mutex);
  const Sample& older = *reinterpret_cast<Sample*>(get->sample1);
  const Sample& newer = *reinterpret_cast<Sample*>(get->sample2);
  if (get->version != nvml::kGpmMetricsGetVersion || older.gpu != newer.gpu || older.gpu < 0)
    return 2;  // NVML_ERROR_INVALID_ARGUMENT
  fake->compared_older = older.number;
  fake->compared_newer = newer.number;
  FakeNvml::Gpu& gpu = fake->gpus[older.gpu];
  for (unsigned int i = 0; i < get->count; ++i) {
    get->metrics[i].value = gpu.gpm_percent[get->metrics[i].id];
    get->metrics[i].result = gpu.gpm_results[get->metrics[i].id];
  }
  return nvml::kSuccess;
}

}  // namespace

FakeNvml::FakeNvml() { fake = this; }
FakeNvml::~FakeNvml() { fake = nullptr; }

nvml::Api FakeNvml::api() const {
  return {.Init = Init,
          .Shutdown = Shutdown,
          .ErrorString = ErrorString,
          .DeviceGetHandleByPciBusId = GetHandle,
          .DeviceGetUuid = GetUuid,
          .DeviceGetPowerUsage = GetPower,
          .DeviceGetTotalEnergyConsumption = GetEnergy,
          .DeviceGetTemperature = GetTemperature,
          .DeviceGetClockInfo = GetClock,
          .DeviceGetDefaultApplicationsClock = GetDefaultClock,
          .DeviceGetCurrentClocksThrottleReasons = GetThrottleReasons,
          .SystemGetDriverVersion = GetDriverVersion,
          .EventSetCreate = CreateSet,
          .EventSetFree = FreeSet,
          .EventSetWait = WaitSet,
          .DeviceRegisterEvents = Register,
          .GpmQueryDeviceSupport = QuerySupport,
          .GpmSampleAlloc = AllocateSample,
          .GpmSampleFree = FreeSample,
          .GpmSampleGet = TakeSample,
          .GpmMetricsGet = GetMetrics};
}

void FakeNvml::AwaitPoll() {
  absl::MutexLock lock(&mutex);
  // The one that may be under way, a whole one, and the beginning of the next.
  const int enough = polls + 3;
  while (polls < enough) changed.Wait(&mutex);
}

nvml::EventData FakeNvml::Xid(int gpu, unsigned long long number) {
  return {DeviceOf(gpu), nvml::kEventXidCriticalError, number, 0, 0};
}

}  // namespace warpcall::testing
