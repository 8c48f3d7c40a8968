#include "server/program/options.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "server/runtime/cpu/control_group.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/transport/grpc_1_51/busy_poll.h"

namespace warpcall {
namespace {

// A GPU's lane also copies in and sends answers, which takes longer than the device for small and
// middling requests: of 1 MiB, eight connections got 4500 a second with two lanes, 6000 with four
// and with eight.
constexpr int kLanesPerCpu = 2;
constexpr int kLanesPerGpu = 4;

// A gRPC thread may spend so long on a job of the CPU device: what handing it to a lane and being
// woken costs on two cores.
constexpr int64_t kRunByCallerNsMax = 30'000;

// A lane that sleeps is woken 10 to 40 us late, and finds its core's caches cold: launching takes 9
// to 15 us then instead of 5 (an H200's host). A client that waits for each answer comes back
// within some 100 us, one in Python within 400. Where there are few cores, others need them more.
constexpr int64_t kLaneSpinNs = 1'000'000;
constexpr int64_t kLaneSpinFewCpusNs = 200'000;
constexpr int kCpusToSpin = 8;

// Large inputs are copied by several threads: one copies some 6 to 12 GB/s.
constexpr int kCopyThreadsMin = 2;
constexpr int kCopyThreadsMax = 4;

}  // namespace

DeviceOptions ToDeviceOptions(const Config& config) {
  DeviceOptions options;
  options.selection = config.devices;
  options.lanes_per_device = config.lanes_per_device > 0 ? config.lanes_per_device : kLanesPerGpu;
  options.fault_injection = config.tests.fault_injection;
  options.cpu_workers = config.tests.cpu_workers;
  options.compile_cache = config.compile_cache;
  options.graph_bytes_max = static_cast<size_t>(config.graph_mib * kMib);
  return options;
}

EngineOptions ToEngineOptions(const Config& config) {
  EngineOptions options;
  options.lanes_per_device = config.lanes_per_device > 0 ? config.lanes_per_device : kLanesPerCpu;
  options.lanes_per_gpu = config.lanes_per_device > 0 ? config.lanes_per_device : kLanesPerGpu;
  options.staging_bytes = static_cast<size_t>(config.staging_mib * kMib);
  if (config.resident_mib >= 0) options.resident_bytes_max = config.resident_mib * kMib;
  options.graph_bytes_max = static_cast<size_t>(config.graph_mib * kMib);
  options.residents.ttl_ns = static_cast<int64_t>(config.resident_ttl_seconds * 1e9);
  options.residents.ttl_ns_max = static_cast<int64_t>(config.resident_ttl_seconds_max * 1e9);
  options.queue = {config.queue_limit, config.queue_mib * kMib,
                   static_cast<int64_t>(config.queue_seconds * 1e9)};
  options.run_ns_max = static_cast<int64_t>(config.max_run_seconds * 1e9);
  // Workers have lanes of their own only.
  options.run_by_caller_ns_max = config.tests.cpu_workers == 0 ? kRunByCallerNsMax : 0;
  options.lane_spin_ns = UsableCpus() >= kCpusToSpin ? kLaneSpinNs : kLaneSpinFewCpusNs;
  options.copy_threads = std::clamp(UsableCpus() / 2, kCopyThreadsMin, kCopyThreadsMax);
  options.create_executor = CreateExecutor;
  options.on_devices_lost = [] { kill(getpid(), kDevicesLost); };
  return options;
}

std::string CudaInclude(const Config& config) {
  if (!config.cuda_include.empty()) return config.cuda_include;
  std::error_code ignored;
  return std::filesystem::is_directory(WARPCALL_CUDA_INCLUDE, ignored) ? WARPCALL_CUDA_INCLUDE : "";
}

absl::Duration BusyPoll(const Config& config) {
  return config.busy_poll_us < 0 ? BusyPollFor(UsableCpus())
                                 : absl::Microseconds(config.busy_poll_us);
}

ThreadNeeds ToThreadNeeds(const Config& config) {
  const EngineOptions options = ToEngineOptions(config);
  return {.cpus = CpuDevice::UsableThreads(),
          .cores = static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)),
          .lanes = options.lanes_per_device,
          .copy_threads = options.copy_threads,
          .cpu_workers = config.tests.cpu_workers};
}

}  // namespace warpcall
