// What a device's memory gives at best: the ceiling that memory-bound kernels are measured by.
#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/row_timer.h"
#include "server/inspect/summary.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

constexpr int kSamples = 10;
constexpr int64_t kCachesCopied = 4;
// Bytes of input and output together.
constexpr int64_t kGpuBytes = int64_t{2} << 30;
constexpr int64_t kGpuMemoryShare = 4;  // of less memory than 8 GiB
constexpr int64_t kCpuBytesMin = int64_t{128} << 20;
// Touching a page first takes longer than copying it; more would keep the caller waiting.
constexpr int64_t kCpuBytesMax = int64_t{256} << 20;
// Time for 2 samples from a CPU's memory of 10 GB/s, for all from a GPU's.
constexpr int64_t kRowNsMax = 50'000'000;
// Longer than what memory controllers or caches could find equal.
constexpr int64_t kPeriodElements = int64_t{1} << 20;

int64_t BytesToCopy(const DeviceProperties& device) {
  const int64_t evicting = CacheBytes(device) * kCachesCopied;
  if (device.kind == DeviceKind::kCpu) return std::clamp(evicting, kCpuBytesMin, kCpuBytesMax);
  return std::max(evicting, std::min(kGpuBytes, device.memory_bytes / kGpuMemoryShare));
}

bool IsOwnCopy(const Row& row, const DeviceProperties& device) {
  const Family family = row.implementation.family;
  return row.implementation.device_kind == device.kind && family != Family::kManual &&
         family != Family::kReference;
}

// Nanoseconds of the row's median launch.
absl::StatusOr<double> TimeCopy(const Implementation& row, const Problem& problem,
                                const DeviceProperties& device, const RowTimer::Shared& shared) {
  Buffer workspace;
  const auto allocate = [&](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(workspace, shared.stream->AllocateMemory(bytes));
    return workspace.data();
  };
  ASSIGN_OR_RETURN(
      const PlanPtr plan,
      MakePlanOn({shared.stream, &device, &(*shared.sets)[0], allocate}, row, problem));
  RETURN_IF_ERROR(allocate(plan->traits().workspace_bytes).status());
  RowTimer timer(plan, shared, {.warmup_launches = 1, .samples = kSamples, .ns_max = kRowNsMax},
                 workspace.data());
  RETURN_IF_ERROR(timer.First());
  if (!timer.done()) RETURN_IF_ERROR(timer.WarmUp());
  while (!timer.done()) RETURN_IF_ERROR(timer.Sample());
  return Summarize(timer.samples_ns()).median;
}

}  // namespace

absl::StatusOr<double> MeasureCopyBandwidth(const Registry& registry, Device* device) {
  const DeviceProperties& properties = device->properties();
  const Kernel* kernel;
  ASSIGN_OR_RETURN(kernel, registry.Find("identity"));
  const auto element_bytes = static_cast<int64_t>(ElementBytes(DataType::kFloat32));
  Problem problem;
  ASSIGN_OR_RETURN(
      problem,
      MakeProblem(*kernel->op,
                  {{DataType::kFloat32, {BytesToCopy(properties) / (2 * element_bytes)}}}, {}));
  std::unique_ptr<Stream> stream;
  ASSIGN_OR_RETURN(stream, device->CreateStream());
  RETURN_IF_ERROR(stream->BindThread());
  cpu::ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  absl::StatusOr<OperandSets> sets = OperandSets::Create(
      {.problem = &problem, .period = kPeriodElements}, properties, stream.get(), &pool);
  if (!sets.ok()) return sets.status();
  double best = 0;
  absl::Status status = absl::NotFoundError(
      absl::StrCat("identity has no fast implementation for ", properties.name));
  for (const int id : kernel->rows) {
    const Row& row = registry.rows()[id];
    if (!IsOwnCopy(row, properties) ||
        !registry.Select(*kernel, row.implementation.name, problem, properties).ok())
      continue;
    const absl::StatusOr<double> copy_ns =
        TimeCopy(row.implementation, problem, properties, {stream.get(), &*sets});
    if (!copy_ns.ok()) status = copy_ns.status();
    if (copy_ns.ok() && *copy_ns > 0)
      best = std::max(best, static_cast<double>(problem.inputs[0].bytes()) * 2e9 / *copy_ns);
  }
  if (best > 0) return best;
  return status;
}

}  // namespace warpcall::inspect
