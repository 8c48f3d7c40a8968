#include "server/inspect/profile.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/common/status_macros.h"
#include "server/engine/engine.h"
#include "server/engine/retry_pushback.h"
#include "server/engine/rounds.h"
#include "server/inspect/phase_recorder.h"
#include "server/inspect/profile_rows.h"

namespace warpcall::inspect {
namespace {

// Before the runs that are watched: launches that repeat are recorded when they come the fourth
// time and replayed from then on, as they are in a server that is busy.
constexpr int kRunsBefore = 5;
// Staging beyond the operands, for their alignment.
constexpr size_t kStagingSlackBytes = size_t{1} << 20;

InputPieces Prefix(const InputPieces& pieces, size_t bytes) {
  InputPieces prefix;
  for (const absl::Span<const char> piece : pieces) {
    if (bytes == 0) break;
    prefix.push_back(piece.subspan(0, bytes));
    bytes -= prefix.back().size();
  }
  return prefix;
}

// Sends the plan's request through an engine, one run after the other.
class Runner {
 public:
  static absl::StatusOr<std::unique_ptr<Runner>> Create(const Registry& registry,
                                                        std::unique_ptr<Device> device,
                                                        const ProfilePlan& plan) {
    EngineOptions options;
    options.lanes_per_device = options.lanes_per_gpu = 1;
    options.staging_bytes = kStagingSlackBytes;
    for (const TensorSpec& spec : plan.problem.inputs) options.staging_bytes += spec.bytes();
    for (const TensorSpec& spec : plan.problem.outputs) options.staging_bytes += spec.bytes();
    options.queue = {1, static_cast<int64_t>(options.staging_bytes)};
    std::unique_ptr<Runner> runner(new Runner(plan));
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(device));
    ASSIGN_OR_RETURN(runner->engine_, Engine::Create(registry, std::move(devices), options));
    return runner;
  }

  absl::Status Run() { return Run(plan_.kernel->op, plan_.problem); }

  // What a run launches, each kernel once: of a large request its first round, uncut.
  absl::Status RunFirstRound() {
    const Op& op = *plan_.kernel->op;
    const Rounds rounds =
        PlanRounds(&op, plan_.row->implementation, plan_.problem, engine_->device(0));
    return Run(nullptr,
               rounds.count == 1 ? plan_.problem : TakeParts(op, plan_.problem, rounds.PartsIn(0)));
  }

  // Of the last run.
  const ProfiledRun& last() const { return last_; }

 private:
  explicit Runner(const ProfilePlan& plan) : plan_(plan) {}

  // `op` null: in one round.
  absl::Status Run(const Op* op, const Problem& problem) {
    RequestTrace trace;
    trace.kernel = plan_.kernel->id;
    trace.row = plan_.row->id;
    trace.work = plan_.kernel->op->work(problem);
    absl::Status result;
    absl::Notification done;
    std::unique_ptr<Job> job = NewJob(problem);
    job->op = op;
    job->trace = &trace;
    job->done = [&](absl::Status status, StagingBuffers) {
      result = std::move(status);
      done.Notify();
    };
    last_.request = job->key.id;
    last_.submitted_ns = MonotonicNs();
    RETURN_IF_ERROR(engine_->Submit(&job));
    done.WaitForNotification();
    last_.done_ns = MonotonicNs();
    last_.queue_ns = trace.queue_ns;
    return result;
  }

  // With the first of the plan's bytes, as many as `problem` takes.
  std::unique_ptr<Job> NewJob(const Problem& problem) {
    auto job = std::make_unique<Job>();
    job->key.id = ++runs_;
    job->row = plan_.row;
    job->problem = problem;
    for (size_t i = 0; i < problem.inputs.size(); ++i) {
      const size_t bytes = problem.inputs[i].bytes();
      job->input_bytes += static_cast<int64_t>(bytes);
      job->inputs.push_back(Prefix(plan_.inputs[i], bytes));
    }
    for (const TensorSpec& spec : problem.outputs)
      job->output_bytes += static_cast<int64_t>(spec.bytes());
    job->cancelled = &cancelled_;
    job->release_inputs = [] {};
    return job;
  }

  const ProfilePlan& plan_;
  const std::atomic<bool> cancelled_{false};
  uint64_t runs_ = 0;
  ProfiledRun last_;
  std::unique_ptr<Engine> engine_;  // last: its lanes use the others
};

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

absl::Status Watch(Runner* runner, DeviceProfiler* profiler, int iterations, Watched* watched) {
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

absl::StatusOr<ProfileReport> RunProfile(const Registry& registry, std::unique_ptr<Device> device,
                                         const ProfilePlan& plan) {
  const std::string device_name = device->properties().name;
  std::unique_ptr<Runner> runner;  // owns the device, which the profiler goes before
  absl::StatusOr<std::unique_ptr<DeviceProfiler>> profiler = device->CreateProfiler();
  const bool traces = profiler.ok();
  const bool is_cpu = device->properties().kind == DeviceKind::kCpu;
  ProfileReport report;
  Watched watched;
  ASSIGN_OR_RETURN(runner, Runner::Create(registry, std::move(device), plan));
  RETURN_IF_ERROR(runner->Run());
  if (traces) {
    auto counters = (*profiler)->Count([&] { return runner->RunFirstRound(); });
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
