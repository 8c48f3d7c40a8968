#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/cpu/reads.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/multiply_adds.h"
#include "kernels/cuda/reads.h"
#include "kernels/graph/step_graph.h"
#include "kernels/pushed/pushed_plan.h"
#include "proto/common/status_macros.h"
#include "server/log/log.h"
#include "server/program/cpu_workers.h"
#include "server/program/devices.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/cuda/nvml_conditions.h"
#include "server/runtime/cuda/nvml_monitor.h"
#include "server/runtime/cuda/nvtx_phases.h"
#include "server/worker/process.h"

namespace warpcall {
namespace {

std::vector<std::string> GpuNames(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(CudaDevice::NameOf(i));
  return names;
}

// "cuda:1" -> 1 when there is such a GPU.
absl::StatusOr<int> OrdinalOf(absl::string_view name) {
  int count;
  ASSIGN_OR_RETURN(count, CudaDevice::Count());
  const std::vector<std::string> names = GpuNames(count);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  return absl::NotFoundError(
      absl::StrCat("device \"", name, "\" does not exist; available: ", absl::StrJoin(names, ", "),
                   names.empty() ? "" : ", ", "cpu"));
}

// The GPUs that `selection` names, each once.
absl::StatusOr<std::vector<std::string>> SelectGpus(const std::string& selection) {
  if (selection == "auto") {
    int count;
    ASSIGN_OR_RETURN(count, CudaDevice::Count());
    return GpuNames(count);
  }
  std::vector<std::string> selected;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(selection, ','))) {
    if (name == "cpu" || std::find(selected.begin(), selected.end(), name) != selected.end())
      continue;
    if (name == "auto")
      return absl::InvalidArgumentError("--devices: auto stands alone, for all devices");
    RETURN_IF_ERROR(OrdinalOf(name).status());
    selected.push_back(name);
  }
  return selected;
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const std::string& name,
                                                const DeviceOptions& options, int gpus) {
  if (gpus > 1)
    return worker::StartWorker({.device = name,
                                .lanes = options.lanes_per_device,
                                .devices = gpus,
                                .fault_injection = options.fault_injection,
                                .compile_cache = options.compile_cache});
  int ordinal;
  ASSIGN_OR_RETURN(ordinal, OrdinalOf(name));
  return CudaDevice::Open(ordinal, options.compile_cache);
}

std::vector<DeviceErrorCount> LocalErrorCounts() {
  std::vector<DeviceErrorCount> counts;
  for (const cuda::ErrorCount& error : cuda::ErrorCounts())
    counts.push_back({error.code, error.count});
  return counts;
}

// Serves one GPU from a worker process.
absl::Status Serve(const worker::Ends& ends, const DeviceOptions& options) {
  Registry registry;
  AddKernels(&registry);
  if (options.fault_injection) AddFaultInjection(&registry);
  int ordinal;
  ASSIGN_OR_RETURN(ordinal, OrdinalOf(options.selection));
  std::unique_ptr<CudaDevice> device;
  ASSIGN_OR_RETURN(device, CudaDevice::Open(ordinal, options.compile_cache));
  device->SetGraphBytesMax(options.graph_bytes_max);
  return worker::ServeDevice(
      ends, {.registry = &registry,
             .device = device.get(),
             .pin = [&](void* data, size_t bytes) { return device->PinStaging(data, bytes); },
             .errors = LocalErrorCounts});
}

class NvmlGpuMonitor final : public GpuMonitor {
 public:
  NvmlGpuMonitor(const nvml::Api& api, const std::vector<nvml::WatchedGpu>& gpus)
      : monitor_(api, gpus) {}
  std::vector<GpuReading> Readings() const override { return monitor_.Readings(); }

 private:
  nvml::Monitor monitor_;
};

}  // namespace

void AddKernels(Registry* registry) {
  AddCudaKernels(registry);
  AddCpuKernels(registry);
  AddGraphKernel({DeviceKind::kCuda, DeviceKind::kCpu}, registry);
}

void AddFaultInjection(Registry* registry) {
  AddFaultKernels(registry);
  AddBrokenKernels(registry);
}

absl::StatusOr<std::vector<DeviceName>> ModelsOf(const DeviceOptions& options) {
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(names, SelectGpus(options.selection));
  std::vector<DeviceName> devices;
  std::vector<std::string> models;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const int ordinal, OrdinalOf(name));
    const std::string model = CudaDevice::ModelOf(ordinal).value_or(name);
    if (std::find(models.begin(), models.end(), model) != models.end()) continue;
    models.push_back(model);
    devices.push_back({name, DeviceKind::kCuda});
  }
  devices.push_back({"cpu", DeviceKind::kCpu});
  return devices;
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(
    const DeviceOptions& options, std::vector<std::string>* left_out) {
  if (options.cpu_workers > 0) return StartCpuWorkers(options);
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(names, SelectGpus(options.selection));
  std::vector<std::unique_ptr<Device>> devices;
  for (const std::string& name : names) {
    auto device = OpenGpu(name, options, static_cast<int>(names.size()));
    if (device.ok()) {
      devices.push_back(*std::move(device));
      continue;
    }
    if (options.selection != "auto") return std::move(device).status();
    Log(LogLevel::kWarning, "a GPU is left out",
        {{"device", name}, {"error", device.status().message()}});
    if (left_out != nullptr) left_out->push_back(name);
  }
  if (options.selection == "auto" && devices.empty())
    Log(LogLevel::kWarning, kNoGpu, {{"found", static_cast<int64_t>(names.size())}});
  devices.push_back(std::make_unique<CpuDevice>(CpuDevice::UsableThreads(), "cpu",
                                                options.measures ? 0 : CpuDevice::kServingNice));
  return devices;
}

absl::StatusOr<std::unique_ptr<Executor>> CreateExecutor(Device* device) {
  auto* const remote = dynamic_cast<worker::RemoteDevice*>(device);
  return remote == nullptr ? CreateLocalExecutor(device, MonotonicNs) : remote->CreateExecutor();
}

absl::Status RunWorker(const DeviceOptions& options, const process::Channel& parent) {
  if (IsCpuWorker(options.selection)) return RunCpuWorker(options, parent);
  const worker::Ends ends = worker::InheritedEnds(parent, options.lanes_per_device);
  InstallPhaseWatcher();
  absl::Status status = Serve(ends, options);
  if (!status.ok()) worker::ReportFailure(ends, status);
  return status;
}

std::vector<DeviceErrorCount> DeviceErrorCounts(const Engine& engine) {
  std::vector<DeviceErrorCount> counts = LocalErrorCounts();
  for (int i = 0; i < engine.device_count(); ++i) {
    const auto* const remote = dynamic_cast<const worker::RemoteDevice*>(&engine.device(i));
    if (remote == nullptr) continue;
    const std::vector<int64_t> theirs = remote->error_counts();
    for (size_t k = 0; k < theirs.size() && k < counts.size(); ++k) counts[k].count += theirs[k];
  }
  return counts;
}

std::unique_ptr<GpuMonitor> StartGpuMonitor(const Engine& engine) {
  std::vector<nvml::WatchedGpu> gpus;
  for (int i = 0; i < engine.device_count(); ++i) {
    const DeviceProperties& properties = engine.device(i).properties();
    if (properties.kind == DeviceKind::kCuda)
      gpus.push_back({properties.name, properties.pci_bus_id});
  }
  if (gpus.empty()) return nullptr;
  const absl::StatusOr<nvml::Api> api = nvml::Open(nvml::kFile);
  if (api.ok()) return std::make_unique<NvmlGpuMonitor>(*api, gpus);
  Log(LogLevel::kInfo, "GPUs are not monitored", {{"error", api.status().message()}});
  return nullptr;
}

std::unique_ptr<ConditionReader> OpenConditions(const Device& device) {
  if (device.properties().kind != DeviceKind::kCuda) return nullptr;
  const absl::StatusOr<nvml::Api> api = nvml::Open(nvml::kFile);
  if (!api.ok()) return nullptr;
  auto conditions = nvml::GpuConditions::Open(*api, device.properties().pci_bus_id);
  return conditions.ok() ? *std::move(conditions) : nullptr;
}

absl::StatusOr<MultiplyAdds> MultiplyAddsFor(Arithmetic arithmetic,
                                             const DeviceProperties& device) {
  if (device.kind != DeviceKind::kCuda)
    return absl::UnimplementedError(absl::StrCat("there is none for ", device.name));
  return cuda::MultiplyAddsOn(arithmetic, device);
}

absl::StatusOr<PlanPtr> ReadsFor(int64_t bytes, const DeviceProperties& device) {
  return device.kind == DeviceKind::kCuda ? cuda::ReadsOn(bytes, device)
                                          : cpu::ReadsOn(bytes, device);
}

absl::StatusOr<PlanPtr> LoadPushed(const compiled::CudaCode& code,
                                   const manifest::KernelLaunches& launches, bool scratch_zero,
                                   const DeviceProperties& device) {
  if (device.kind != DeviceKind::kCuda)
    return absl::UnimplementedError(absl::StrCat(device.name, " runs no pushed kernels"));
  return pushed::NewPushedPlan(code, launches, scratch_zero, device);
}

void InstallPhaseWatcher() {
  if (const PhaseWatcher* watcher = NvtxPhaseWatcher())
    phase_watcher.store(watcher, std::memory_order_release);
}

const char* CudaVersion() { return cuda::ToolkitVersion(); }

}  // namespace warpcall
