// Cost of running a job in a worker process instead of on a
// stream of this process: identity of 64 bytes on the CPU device,
// one lane, in one run. warpcall_worker_hop_bench [COUNT]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/registry.h"
#include "proto/common/status_macros.h"
#include "server/engine/engine.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/process.h"
#include "tests/cpu_kernels.h"
#include "tests/server/worker/cpu_worker.h"

namespace warpcall {
namespace {

constexpr size_t kBytes = 64;
constexpr size_t kStagingBytes = 1 << 20;
constexpr int kSpinPlaces = 2;

// Prints the time of a job from Run's call to its return.
absl::Status Measure(const char* name, Executor* executor, char* staging, int count) {
  const Kernel* kernel;
  ASSIGN_OR_RETURN(kernel, testing::CpuKernels().Find("identity"));
  RequestTrace trace;
  Job job;
  job.op = kernel->op;
  job.row = &testing::CpuKernels().rows()[static_cast<size_t>(kernel->rows[0])];
  ASSIGN_OR_RETURN(job.problem,
                   MakeProblem(*kernel->op, {TensorSpec{DataType::kFloat32, {kBytes / 4}}}, {}));
  job.input_bytes = job.output_bytes = kBytes;
  job.trace = &trace;
  const std::vector<StagingRange> ranges = {{staging, kBytes}, {staging + 4096, kBytes}};
  std::vector<double> us;
  for (int i = 0; i < count; ++i) {
    const int64_t start_ns = MonotonicNs();
    RETURN_IF_ERROR(executor->Run(job, ranges));
    us.push_back(static_cast<double>(MonotonicNs() - start_ns) / 1e3);
  }
  std::sort(us.begin(), us.end());
  std::printf("%-28s p50 %7.1f us   p99 %7.1f us\n", name, us[us.size() / 2],
              us[us.size() * 99 / 100]);
  return absl::OkStatus();
}

absl::Status MeasureLocal(int count) {
  CpuDevice device(1);
  Buffer staging;
  ASSIGN_OR_RETURN(staging, device.AllocateStaging(kStagingBytes));
  std::unique_ptr<Executor> executor;
  ASSIGN_OR_RETURN(executor, CreateLocalExecutor(&device, MonotonicNs));
  RETURN_IF_ERROR(executor->BindThread());
  return Measure("in this process", executor.get(), static_cast<char*>(staging.data()), count);
}

absl::Status MeasureWorker(const char* name, int spin_places, int count) {
  std::unique_ptr<worker::RemoteDevice> device;
  ASSIGN_OR_RETURN(
      device,
      worker::RemoteDevice::Create(
          {.start = [](int staging) { return worker::SpawnWorker({.device = "cpu"}, staging); },
           .spin_places = spin_places}));
  Buffer staging;
  ASSIGN_OR_RETURN(staging, device->AllocateStaging(kStagingBytes));
  std::unique_ptr<Executor> executor;
  ASSIGN_OR_RETURN(executor, device->CreateExecutor());
  return Measure(name, executor.get(), static_cast<char*>(staging.data()), count);
}

absl::Status Run(int count) {
  std::printf("%d jobs each; cores: %d, of which %d wait awake for one worker\n", count,
              worker::UsableCores(), worker::SpinPlacesFor(worker::UsableCores(), 1));
  for (int round = 0; round < 3; ++round) {
    RETURN_IF_ERROR(MeasureLocal(count));
    RETURN_IF_ERROR(MeasureWorker("worker, both sides awake", kSpinPlaces, count));
    RETURN_IF_ERROR(MeasureWorker("worker, both sides asleep", 0, count));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace warpcall

int main(int argc, char** argv) {
  const auto served =
      warpcall::testing::RunAsCpuWorker(argc, argv, warpcall::testing::CpuKernels());
  if (served.has_value()) return *served;
  const absl::Status status = warpcall::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 20'000);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
