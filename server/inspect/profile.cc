#include "server/inspect/profile.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "server/engine/retry_pushback.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/phase_recorder.h"
#include "server/inspect/profile_rows.h"
#include "server/inspect/profile_runner.h"

namespace warpcall::inspect {
namespace {

// Before the runs that are watched: launches that repeat are recorded when they come the fourth
// time and replayed from then on, as they are in a server that is busy.
constexpr int kRunsBefore = 5;

// On a device without a profiler, the CPU, the launch of a row is its work.
void MoveLaunchesToDevice(const Row& row, Watched* watched) {
  std::vector<RecordedPhase> rest;
  for (const RecordedPhase& phase : watched->phases) {
    if (std::strcmp(phase.name, row.implementation.name) != 0) {
      rest.push_back(phase);
      continue;
    }
    DeviceActivity& activity = watched->activities.emplace_back();
    activity.name = phase.name;
    activity.start_ns = phase.start_ns;
    activity.end_ns = phase.end_ns;
  }
  watched->phases = std::move(rest);
}

absl::Status Watch(ProfileRunner* runner, DeviceProfiler* profiler, int iterations,
                   Watched* watched) {
  if (profiler != nullptr) RETURN_IF_ERROR(profiler->StartTrace());
  StartRecordingPhases();
  absl::Status status;
  for (int i = 0; i < iterations && status.ok(); ++i) {
    status = runner->Run();
    watched->runs.push_back(runner->last());
  }
  watched->phases = StopRecordingPhases();
  RETURN_IF_ERROR(status);
  if (profiler == nullptr) return absl::OkStatus();
  absl::StatusOr<std::vector<DeviceActivity>> activities = profiler->StopTrace();
  if (absl::IsDataLoss(activities.status()))
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat(activities.status().message(),
                                                  ": ask for fewer iterations than ", iterations)),
        kNeverRetry);
  ASSIGN_OR_RETURN(watched->activities, std::move(activities));
  return absl::OkStatus();
}

}  // namespace

int64_t ProfileBytes(const Problem& problem, bool request_path) {
  if (!request_path) return BenchmarkBytes(problem);
  // On the host the inputs as they came, and staging.
  int64_t bytes = OperandLayout(problem).bytes;
  for (const TensorSpec& spec : problem.inputs)
    bytes = SaturatingAdd(bytes, static_cast<int64_t>(spec.bytes()));
  return bytes;
}

absl::StatusOr<ProfileReport> RunProfile(const Registry& registry, std::unique_ptr<Device> device,
                                         const ProfilePlan& plan) {
  const std::string device_name = device->properties().name;
  std::unique_ptr<ProfileRunner> runner;  // owns the device, which the profiler goes before
  absl::StatusOr<std::unique_ptr<DeviceProfiler>> profiler = device->CreateProfiler();
  const bool traces = profiler.ok();
  const bool is_cpu = device->properties().kind == DeviceKind::kCpu;
  ProfileReport report;
  Watched watched;
  ASSIGN_OR_RETURN(runner, plan.request_path ? NewRequestRunner(registry, std::move(device), plan)
                                             : NewKernelRunner(std::move(device), plan));
  RETURN_IF_ERROR(runner->Run());
  if (traces) {
    auto counters = (*profiler)->Count([&] { return runner->RunForCounters(); });
    if (counters.ok())
      watched.counters = *std::move(counters);
    else
      report.counters_unavailable = std::string(counters.status().message());
  } else {
    report.counters_unavailable = std::string(profiler.status().message());
  }
  for (int run = 0; run < kRunsBefore - 2; ++run) RETURN_IF_ERROR(runner->Run());
  RETURN_IF_ERROR(
      Watch(runner.get(), traces ? profiler->get() : nullptr, plan.iterations, &watched));
  if (is_cpu) MoveLaunchesToDevice(*plan.row, &watched);
  report.rows = RowsOf(watched);
  if (plan.trace)
    report.trace_json =
        ChromeTrace(watched, {device_name, plan.kernel->op->name, plan.row->implementation.name,
                              plan.request_id, plan.traceparent});
  return report;
}

}  // namespace warpcall::inspect
