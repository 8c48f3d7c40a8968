// Measures the engine's overhead around a kernel on a GPU: gelu through lanes, staging and streams,
// without gRPC, against the bare CUDA calls on mapped pinned memory. "seen" is the time from the
// first call of the device's runtime until the lane sees the end; "pause" is the client's wait
// between requests, as of a client across a network.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "proto/common/status_macros.h"
#include "server/engine/engine.h"
#include "server/runtime/cuda/cuda_device.h"

namespace warpcall::bench {
namespace {

double MedianUs(std::vector<double> ns) {
  std::nth_element(ns.begin(), ns.begin() + static_cast<long>(ns.size() / 2), ns.end());
  return ns[ns.size() / 2] * 1e-3;
}

void Pause(int us) {
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Room for two tensors of 1 GiB.
constexpr size_t kStagingBytes = (size_t{2} << 30) + (size_t{1} << 20);

int CountFor(size_t bytes) { return bytes > (size_t{8} << 20) ? 30 : 2000; }

struct Times {
  std::vector<double> seen;
  std::vector<double> h2d;
  std::vector<double> kernel;
  std::vector<double> d2h;
};

absl::Status RunEngine(Engine* engine, const Registry& registry, size_t bytes, int pause_us) {
  const Kernel* kernel;
  ASSIGN_OR_RETURN(kernel, registry.Find("gelu"));
  const TensorSpec spec{DataType::kFloat32, {static_cast<int64_t>(bytes / 4)}};
  Problem problem;
  ASSIGN_OR_RETURN(problem, MakeProblem(*kernel->op, {spec}, {}));
  const std::vector<float> input(bytes / 4, 0.7f);
  const std::atomic<bool> cancelled{false};
  Times times;
  absl::Status failure;
  for (int i = 0; i < CountFor(bytes); ++i) {
    RequestTrace trace;
    trace.work = kernel->op->work(problem);
    absl::Notification done;
    auto job = std::make_unique<Job>();
    job->key.id = static_cast<uint64_t>(i);
    Candidate choice;
    ASSIGN_OR_RETURN(choice, engine->Choose(*kernel, "cuda", "", problem));
    job->op = kernel->op;
    job->row = choice.row;
    job->device = choice.device;
    job->load = std::move(choice.load);
    job->problem = problem;
    job->inputs.push_back({{reinterpret_cast<const char*>(input.data()), bytes}});
    job->input_bytes = job->output_bytes = static_cast<int64_t>(bytes);
    job->cancelled = &cancelled;
    job->trace = &trace;
    job->release_inputs = [] {};
    job->done = [&](absl::Status status, StagingBuffers) {
      failure.Update(status);
      done.Notify();
    };
    RETURN_IF_ERROR(engine->Submit(&job));
    done.WaitForNotification();
    RETURN_IF_ERROR(failure);
    times.seen.push_back(static_cast<double>(trace.device_ns));
    times.h2d.push_back(static_cast<double>(trace.h2d_ns));
    times.kernel.push_back(static_cast<double>(trace.kernel_ns));
    times.d2h.push_back(static_cast<double>(trace.d2h_ns));
    Pause(pause_us);
  }
  const double seen = MedianUs(times.seen);
  std::printf(
      "engine %9zu B, pause %4d us: seen %9.1f us (%6.1f GB/s both ways), h2d %8.1f kernel "
      "%7.1f d2h %8.1f\n",
      bytes, pause_us, seen, 2e-3 * static_cast<double>(bytes) / seen, MedianUs(times.h2d),
      MedianUs(times.kernel), MedianUs(times.d2h));
  std::fflush(stdout);
  return absl::OkStatus();
}

// Two events, one launch, spinning on the second: the floor for small requests.
absl::Status RunBare(CudaDevice* device, size_t bytes, int pause_us) {
  RETURN_IF_ERROR(device->MakeCurrent());
  Buffer staging;
  ASSIGN_OR_RETURN(staging, device->AllocateStaging(2 * bytes));
  const Op& op = GeluOp();
  Problem problem;
  ASSIGN_OR_RETURN(
      problem,
      MakeProblem(op, {TensorSpec{DataType::kFloat32, {static_cast<int64_t>(bytes / 4)}}}, {}));
  const Implementation row = GeluCudaRows().front();
  ASSIGN_OR_RETURN(const PlanPtr plan, row.plan(problem, {.device = &device->properties()}));
  Operands operands;
  operands.inputs = {staging.data()};
  operands.outputs = {static_cast<char*>(staging.data()) + bytes};
  cudaStream_t stream;
  cudaEvent_t begin, end;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<double> seen;
  std::vector<double> kernel;
  for (int i = 0; i < CountFor(bytes); ++i) {
    const auto start = std::chrono::steady_clock::now();
    cudaEventRecord(begin, stream);
    RETURN_IF_ERROR(plan->Enqueue(operands, {.stream = stream}));
    cudaEventRecord(end, stream);
    while (cudaEventQuery(end) == cudaErrorNotReady) {
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    seen.push_back(time.count());
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    kernel.push_back(1e6 * static_cast<double>(ms));
    Pause(pause_us);
  }
  std::printf("bare   %9zu B, pause %4d us: seen %9.1f us, kernel %7.1f\n", bytes, pause_us,
              MedianUs(seen), MedianUs(kernel));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  return absl::OkStatus();
}

absl::Status Main() {
  std::unique_ptr<CudaDevice> device;
  ASSIGN_OR_RETURN(device, CudaDevice::Open(0));
  for (const int pause_us : {0, 500})
    for (const size_t bytes : {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20})
      RETURN_IF_ERROR(RunBare(device.get(), bytes, pause_us));
  Registry registry;
  AddCudaKernels(&registry);
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::move(device));
  EngineOptions options;
  options.staging_bytes = kStagingBytes;
  std::unique_ptr<Engine> engine;
  ASSIGN_OR_RETURN(engine, Engine::Create(registry, std::move(devices), options));
  for (const int pause_us : {0, 500})
    for (size_t bytes = size_t{4} << 10; bytes <= size_t{1} << 30; bytes *= 4)
      RETURN_IF_ERROR(RunEngine(engine.get(), registry, bytes, pause_us));
  return absl::OkStatus();
}

}  // namespace
}  // namespace warpcall::bench

int main() {
  const absl::Status status = warpcall::bench::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
