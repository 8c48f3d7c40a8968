#include "server/inspect/profile.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/engine/refusal.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/host_meter.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/phase_recorder.h"
#include "server/inspect/profile_rows.h"
#include "server/inspect/profile_runner.h"
#include "server/inspect/stolen_time.h"
#include "server/inspect/thread_waits.h"

namespace warpcall::inspect {
namespace {

// Runs before the watched ones. A repeated launch is recorded at its fourth run and replayed from
// then on, as in a busy server.
constexpr int kRunsBefore = 5;

constexpr char kCpuHasNoShares[] =
    "a CPU tells no occupancy and no shares of a peak; what it counts are rows of their own";

// On a device without a profiler, the CPU, a row's launch phase is its work; a graph's are the
// phases within it, one a step.
void MoveLaunchesToDevice(const ProfilePlan& plan, Watched* watched) {
  std::vector<RecordedPhase> rest;
  const auto move = [watched](const RecordedPhase& phase, std::string step) {
    DeviceActivity& activity = watched->activities.emplace_back();
    activity.name = phase.name;
    activity.step = std::move(step);
    activity.start_ns = phase.start_ns;
    activity.end_ns = phase.end_ns;
  };
  for (const RecordedPhase& phase : watched->phases) {
    if (std::strcmp(phase.name, plan.row->implementation.name) != 0) {
      rest.push_back(phase);
      continue;
    }
    if (plan.step_names.empty()) {
      move(phase, "");
      continue;
    }
    const auto steps = std::stable_partition(rest.begin(), rest.end(), [&](const auto& other) {
      return other.thread != phase.thread || other.start_ns < phase.start_ns;
    });
    const auto count = static_cast<size_t>(rest.end() - steps);
    WARPCALL_CHECK(count <= plan.step_names.size(), count, plan.step_names.size());
    for (size_t i = 0; i < count; ++i)
      move(steps[static_cast<std::ptrdiff_t>(i)], plan.step_names[i]);
    rest.erase(steps, rest.end());
  }
  watched->phases = std::move(rest);
}

// A GPU runs the kernels of a graph in the order of its steps. Kernels of the stream itself, which
// read its clock and copy little, come in pairs: one before them all, one behind.
void NameSteps(const ProfilePlan& plan, Watched* watched) {
  auto at = watched->activities.begin();
  for (const ProfiledRun& run : watched->runs) {
    std::vector<DeviceActivity*> kernels;
    for (; at != watched->activities.end() && at->start_ns <= run.done_ns; ++at)
      if (at->kind == DeviceActivity::Kind::kKernel && at->start_ns >= run.submitted_ns)
        kernels.push_back(&*at);
    const auto count = std::accumulate(run.step_kernels.begin(), run.step_kernels.end(), size_t{0});
    if (run.step_kernels.size() != plan.step_names.size()) continue;
    if (kernels.size() < count || (kernels.size() - count) % 2 != 0) continue;
    auto kernel = kernels.begin() + static_cast<std::ptrdiff_t>((kernels.size() - count) / 2);
    for (size_t step = 0; step < plan.step_names.size(); ++step)
      for (int32_t i = 0; i < run.step_kernels[step]; ++i)
        (*kernel++)->step = plan.step_names[step];
  }
}

// Does at least one run, and more until there are `runs` or the plan's time is up.
absl::Status RunFor(const ProfilePlan& plan, int runs, ProfileRunner* runner,
                    std::vector<ProfiledRun>* done) {
  const int64_t end_ns = SaturatingAdd(MonotonicNs(), plan.runs_ns_max);
  for (int run = 0; run < runs && (run == 0 || MonotonicNs() < end_ns); ++run) {
    RETURN_IF_ERROR(runner->Run());
    done->push_back(runner->last());
  }
  return absl::OkStatus();
}

// True if the host's threads do the work.
bool RunsOnCpu(const ProfilePlan& plan) {
  return plan.row->implementation.device_kind == DeviceKind::kCpu;
}

// `profiler` is null on a device without one.
absl::Status Watch(const ProfilePlan& plan, ProfileRunner* runner, DeviceProfiler* profiler,
                   Watched* watched) {
  if (profiler != nullptr) RETURN_IF_ERROR(profiler->StartTrace());
  const StolenTime stolen;
  ThreadWaits waits;
  const int64_t others_ns = waits.Ns() + stolen.Ns();
  std::optional<HostMeter> meter;
  if (RunsOnCpu(plan)) meter.emplace();
  StartRecordingPhases();
  const absl::Status status = RunFor(plan, plan.iterations, runner, &watched->runs);
  watched->phases = StopRecordingPhases();
  if (meter.has_value()) watched->host = meter->Stop();
  // The waits of threads that have ended are lost.
  watched->others_ns = std::max<int64_t>(waits.Ns() + stolen.Ns() - others_ns, 0);
  RETURN_IF_ERROR(status);
  if (profiler == nullptr) return absl::OkStatus();
  absl::StatusOr<std::vector<DeviceActivity>> activities = profiler->StopTrace();
  if (absl::IsDataLoss(activities.status()))
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat(
            activities.status().message(), ": ask for fewer iterations than ", plan.iterations)),
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

absl::StatusOr<v1::ProfileResponse> RunProfile(const Registry& registry,
                                               std::unique_ptr<Device> device,
                                               const ProfilePlan& plan) {
  const std::string device_name = device->properties().name;
  std::unique_ptr<ProfileRunner> runner;  // owns the device; the profiler is destroyed first
  absl::StatusOr<std::unique_ptr<DeviceProfiler>> profiler = device->CreateProfiler();
  const bool traces = profiler.ok();
  v1::ProfileResponse response;
  response.set_device(device_name);
  response.set_implementation(FamilyName(plan.row->implementation.family));
  response.set_variant(plan.row->implementation.name);
  Watched watched;
  ASSIGN_OR_RETURN(runner, plan.request_path ? NewRequestRunner(registry, std::move(device), plan)
                                             : NewKernelRunner(std::move(device), plan));
  RETURN_IF_ERROR(runner->Run());
  if (traces) {
    auto counters = (*profiler)->Count([&] { return runner->RunForCounters(); });
    if (counters.ok())
      watched.counters = *std::move(counters);
    else
      response.set_counters_unavailable(std::string(counters.status().message()));
  } else {
    response.set_counters_unavailable(std::string(profiler.status().message()));
  }
  std::vector<ProfiledRun> unwatched;
  RETURN_IF_ERROR(RunFor(plan, kRunsBefore - 2, runner.get(), &unwatched));
  RETURN_IF_ERROR(Watch(plan, runner.get(), traces ? profiler->get() : nullptr, &watched));
  if (RunsOnCpu(plan)) {
    MoveLaunchesToDevice(plan, &watched);
    response.set_counters_unavailable(watched.host.counters_unavailable.empty()
                                          ? kCpuHasNoShares
                                          : watched.host.counters_unavailable);
  } else {
    NameSteps(plan, &watched);
  }
  response.set_iterations(static_cast<int>(watched.runs.size()));
  response.set_inconclusive(WhyInconclusive(watched));
  *response.mutable_rows() = RowsOf(watched);
  if (plan.trace)
    response.set_trace_json(
        ChromeTrace(watched, {device_name, plan.kernel->op->name, plan.row->implementation.name,
                              plan.request_id, plan.traceparent}));
  return response;
}

}  // namespace warpcall::inspect
