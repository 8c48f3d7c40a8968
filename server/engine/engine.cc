#include "server/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/execution.h"
#include "server/engine/prediction.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

// Most bytes that a gRPC thread may copy: the copy takes as long as waking a lane.
constexpr int64_t kRunByCallerBytesMax = 256 << 10;

int LanesOf(const Device& device, const EngineOptions& options) {
  return device.properties().kind == DeviceKind::kCpu ? options.lanes_per_device
                                                      : options.lanes_per_gpu;
}

}  // namespace

Engine::Engine(const Registry& registry, const EngineOptions& options)
    : registry_(registry),
      limits_{options.clock, options.run_ns_max},
      on_devices_lost_(options.on_devices_lost),
      run_by_caller_ns_max_(options.run_by_caller_ns_max),
      history_(static_cast<int>(registry.rows().size())),
      tuning_(registry),
      copiers_(options.copy_threads) {
  Residents::Options residents = options.residents;
  residents.clock = options.clock;
  residents.timer = options.threads;
  residents_ = std::make_unique<Residents>(std::move(residents));
}

Engine::Runner::Runner(std::unique_ptr<Device> owned_device, Buffer staging_memory,
                       const EngineOptions& options)
    : device(std::move(owned_device)),
      staging(std::move(staging_memory)),
      scheduler({options.queue, LanesOf(*device, options),
                 device->properties().kind == DeviceKind::kCpu ? 0 : options.lane_spin_ns,
                 options.clock, &staging, options.threads}),
      busy(options.clock) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Registry& registry,
                                                       std::vector<std::unique_ptr<Device>> devices,
                                                       const EngineOptions& options) {
  if (devices.empty()) return absl::InvalidArgumentError("there is no device to serve");
  std::unique_ptr<Engine> engine(new Engine(registry, options));
  for (std::unique_ptr<Device>& device : devices)
    RETURN_IF_ERROR(engine->AddDevice(std::move(device), options));
  for (const std::unique_ptr<Runner>& runner : engine->runners_)
    runner->device->OnLost([owner = engine.get()] { owner->HandleLoss(); });
  return engine;
}

absl::StatusOr<std::unique_ptr<Executor>> CreateLocalExecutor(Device* device, Clock clock) {
  std::unique_ptr<Stream> stream;
  ASSIGN_OR_RETURN(stream, device->CreateStream());
  return std::make_unique<Execution>(device, std::move(stream), std::move(clock));
}

absl::Status Engine::AddDevice(std::unique_ptr<Device> device, const EngineOptions& options) {
  Buffer staging_memory;
  ASSIGN_OR_RETURN(staging_memory, device->AllocateStaging(options.staging_bytes));
  Runner& runner = *runners_.emplace_back(
      std::make_unique<Runner>(std::move(device), std::move(staging_memory), options));
  Device* const opened = runner.device.get();
  opened->SetGraphBytesMax(options.graph_bytes_max);
  LaneShared shared = {opened,    &runner.scheduler, &runner.busy, &runner.refusals,
                       &history_, &copiers_,         &limits_,     [this] { HandleLoss(); }};
  tuning_.AddDevice(opened->properties());
  const int64_t resident_max = opened->resident_bytes_max();
  residents_->AddDevice(
      {opened->properties().name, opened->properties().kind,
       options.resident_bytes_max < 0
           ? resident_max
           : std::min(options.resident_bytes_max, resident_max == 0 ? 0 : kNoDeadline)});
  const int lanes = LanesOf(*opened, options);
  balancer_.AddDevice(lanes);
  choices_.places.push_back({opened, &runner.refusals});
  const int preparing_lanes = AnyPrepares(opened->properties().kind) ? kPreparingLanes : 0;
  for (int i = 0; i < lanes + preparing_lanes; ++i) {
    std::unique_ptr<Executor> executor;
    ASSIGN_OR_RETURN(executor, options.create_executor == nullptr
                                   ? CreateLocalExecutor(opened, options.clock)
                                   : options.create_executor(opened));
    const LaneKind kind = i < lanes ? LaneKind::kOrdinary : LaneKind::kPreparing;
    std::unique_ptr<Lane>& lane = i < lanes ? runner.lanes.emplace_back() : runner.preparing_lane;
    lane = std::make_unique<Lane>(shared, std::move(executor));
    if (options.threads)
      runner.threads.push_back(std::make_unique<LaneThread>(&runner.scheduler, lane.get(), kind));
  }
  if (options.run_by_caller_ns_max == 0 || opened->properties().kind != DeviceKind::kCpu)
    return absl::OkStatus();
  shared.scheduler = nullptr;
  for (int i = 0; i < lanes; ++i) {
    std::unique_ptr<Executor> executor;
    ASSIGN_OR_RETURN(executor, CreateLocalExecutor(opened, options.clock));
    runner.caller_lanes.push_back(std::make_unique<CallerLane>(shared, std::move(executor)));
  }
  return absl::OkStatus();
}

bool Engine::AnyPrepares(DeviceKind kind) const {
  const absl::Span<const Row> rows = registry_.rows();
  return std::any_of(rows.begin(), rows.end(), [kind](const Row& row) {
    return row.implementation.device_kind == kind && row.implementation.slow_to_plan;
  });
}

Engine::~Engine() {
  for (const std::unique_ptr<Runner>& runner : runners_) runner->device->OnLost(nullptr);
  for (const std::unique_ptr<Runner>& runner : runners_) runner->scheduler.Close();
  // Jobs hold references on tensors that stay, and those hold the devices' memory.
  for (const std::unique_ptr<Runner>& runner : runners_) runner->threads.clear();
}

void Engine::HandleLoss() {
  for (int i = 0; i < device_count(); ++i) residents_->Lose(i, device(i).memory_losses());
  const DeviceKind kind = device(0).properties().kind;
  for (int i = 0; i < device_count(); ++i)
    if (device(i).properties().kind == kind && !device(i).lost()) return;
  if (!devices_lost_.exchange(true)) on_devices_lost_();
}

absl::Status Engine::CheckRoomFor(uint64_t principal) const {
  absl::Status status;
  for (const std::unique_ptr<Runner>& runner : runners_) {
    status = runner->scheduler.CheckRoomFor(principal);
    if (status.ok()) break;
  }
  return status;
}

absl::Status Engine::Submit(std::unique_ptr<Job>* job) {
  WARPCALL_CHECK((*job)->device >= 0 && (*job)->device < device_count(), (*job)->device);
  Runner& runner = *runners_[static_cast<size_t>((*job)->device)];
  const ServiceHistory::Prediction prediction = Predict(history_, **job);
  (*job)->predicted_ns = prediction.ns;
  (*job)->prediction_measured = prediction.measured();
  (*job)->predicted_ns_at_most = prediction.ns_at_most;
  if (runner.preparing_lane != nullptr)
    (*job)->preparation =
        runner.preparations.Of(*(*job)->row, (*job)->problem, runner.device->restarts());
  (*job)->load = balancer_.Settle(std::move((*job)->load), (*job)->device, prediction.ns);
  (*job)->ended = [this] { JobEnded(); };
  {
    absl::MutexLock lock(&mutex_);
    ++accepted_;
  }
  absl::Status status = CheckRunTime(prediction, limits_.run_ns_max);
  if (status.ok()) status = RunOrQueue(&runner, job);
  if (!status.ok()) {
    const RejectReason reason = RejectReasonOf(status);
    if (reason == RejectReason::kDeadlineUnmeetable || reason == RejectReason::kRunTime)
      LowerPrediction(**job, &history_);
    (*job)->load = DeviceLoad();
    JobEnded();
  }
  return status;
}

absl::Status Engine::RunOrQueue(Runner* runner, std::unique_ptr<Job>* job) {
  const bool small = (*job)->preparation == nullptr &&
                     (*job)->input_bytes + (*job)->output_bytes <= kRunByCallerBytesMax &&
                     (*job)->prediction_measured && (*job)->predicted_ns <= run_by_caller_ns_max_;
  if (small) RETURN_IF_ERROR(RunHere(runner, job));
  return *job == nullptr ? absl::OkStatus() : runner->scheduler.Submit(job);
}

// Leaves the job in place when something of its principal waits, staging is short, or every lane
// for callers is in use.
absl::Status Engine::RunHere(Runner* runner, std::unique_ptr<Job>* job) {
  for (const std::unique_ptr<CallerLane>& caller : runner->caller_lanes) {
    if (!caller->in_use.TryLock()) continue;
    const absl::StatusOr<bool> pass = runner->scheduler.MayRunAtOnce(**job);
    if (pass.ok() && *pass && runner->scheduler.TakeStaging(job->get())) {
      (*job)->submitted_ns = clock_();
      caller->lane.Process(std::move(*job));
    }
    caller->in_use.Unlock();
    return pass.status();
  }
  return absl::OkStatus();
}

void Engine::JobEnded() {
  absl::MutexLock lock(&mutex_);
  WARPCALL_DCHECK(accepted_ > 0, accepted_);
  if (--accepted_ == 0) idle_.SignalAll();
}

void Engine::Cancel(int device, const JobKey& key) {
  std::unique_ptr<Job> job = runners_[static_cast<size_t>(device)]->scheduler.Remove(key);
  if (job == nullptr) return;
  absl::Status status = CheckStillWanted(*job, clock_());
  WARPCALL_DCHECK(!status.ok(), key.id);
  EndJob(std::move(job), std::move(status));
}

void Engine::BeginDrain() {
  for (const std::unique_ptr<Runner>& runner : runners_) runner->scheduler.BeginDrain();
}

bool Engine::AwaitIdle(absl::Duration timeout) {
  const SteadyTime give_up = SteadyAfter(timeout);
  absl::MutexLock lock(&mutex_);
  while (accepted_ > 0)
    if (idle_.WaitUntil(&mutex_, give_up)) break;
  return accepted_ == 0;
}

Engine::Unfinished Engine::EndAll() {
  limits_.drain_over.store(true, std::memory_order_relaxed);
  Unfinished found;
  for (const std::unique_ptr<Runner>& runner : runners_) {
    found.running += static_cast<int64_t>(runner->scheduler.RunningJobs().size());
    for (std::unique_ptr<Job>& job : runner->scheduler.CloseAndTakeAll()) {
      ++found.waiting;
      EndJob(std::move(job), DrainOverError());
    }
  }
  return found;
}

std::vector<Scheduler::Running> Engine::RunningJobs() const {
  std::vector<Scheduler::Running> all;
  for (const std::unique_ptr<Runner>& runner : runners_)
    for (const Scheduler::Running& job : runner->scheduler.RunningJobs()) all.push_back(job);
  return all;
}

void Engine::SetBandwidth(int device, double bytes_per_second) {
  Runner& runner = *runners_[static_cast<size_t>(device)];
  absl::MutexLock lock(&runner.ceilings_mutex);
  auto& [best, second] = runner.bandwidths;
  second = std::max(second, std::min(best, bytes_per_second));
  best = std::max(best, bytes_per_second);
}

Bandwidth Engine::bandwidth(int device) const {
  const Runner& runner = *runners_[static_cast<size_t>(device)];
  absl::MutexLock lock(&runner.ceilings_mutex);
  const auto& [best, second] = runner.bandwidths;
  return {best, best > 0 ? 1 - second / best : 1};
}

void Engine::SetMultiplyAdds(int device, Arithmetic arithmetic, double flops_per_second) {
  Runner& runner = *runners_[static_cast<size_t>(device)];
  absl::MutexLock lock(&runner.ceilings_mutex);
  double& best = runner.multiply_adds[static_cast<size_t>(arithmetic)];
  best = std::max(best, flops_per_second);
}

Engine::Parts Engine::parts(int device) {
  Runner& runner = *runners_[static_cast<size_t>(device)];
  WARPCALL_DCHECK(runner.threads.empty(), device, runner.threads.size());
  Parts parts = {&runner.staging, &runner.scheduler, {}, runner.preparing_lane.get()};
  for (const std::unique_ptr<Lane>& lane : runner.lanes) parts.lanes.push_back(lane.get());
  return parts;
}

int Engine::CountHealthy(DeviceKind kind) const {
  return static_cast<int>(absl::c_count_if(runners_, [kind](const auto& runner) {
    return runner->device->properties().kind == kind && runner->device->healthy();
  }));
}

int64_t Engine::ResidentHostBytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < runners_.size(); ++i)
    if (runners_[i]->device->properties().kind == DeviceKind::kCpu)
      bytes += residents_->usage(static_cast<int>(i)).bytes;
  return bytes;
}

std::vector<DeviceSnapshot> Engine::Snapshot() const {
  std::vector<DeviceSnapshot> snapshots;
  for (const std::unique_ptr<Runner>& runner : runners_) {
    const QueueSnapshot queue = runner->scheduler.Snapshot();
    const MemoryUsage memory = runner->device->memory_usage();
    DeviceSnapshot& snapshot = snapshots.emplace_back();
    snapshot.queue_depth = queue.depth;
    snapshot.queue_bytes = queue.bytes;
    snapshot.queue_work_seconds = static_cast<double>(queue.work_ns) / 1e9;
    snapshot.queue_oldest_age_seconds = queue.oldest_age_seconds;
    snapshot.staging_total_bytes = static_cast<int64_t>(runner->staging.total_bytes());
    snapshot.staging_used_bytes = static_cast<int64_t>(runner->staging.used_bytes());
    snapshot.memory_total_bytes = memory.total_bytes;
    snapshot.memory_used_bytes = memory.used_bytes;
    snapshot.memory_reserved_bytes = memory.reserved_bytes;
    snapshot.work_seconds =
        static_cast<double>(balancer_.load_ns(static_cast<int>(snapshots.size()) - 1)) / 1e9;
    snapshot.healthy = runner->device->healthy();
    snapshot.restarts = runner->device->restarts();
    snapshot.busy_seconds = static_cast<double>(runner->busy.busy_ns()) / 1e9;
    snapshot.bandwidth_ceiling = bandwidth(static_cast<int>(snapshots.size()) - 1);
    {
      absl::MutexLock lock(&runner->ceilings_mutex);
      snapshot.multiply_add_ceilings = runner->multiply_adds;
    }
    const Residents::Usage residents = residents_->usage(static_cast<int>(snapshots.size()) - 1);
    snapshot.resident_total_bytes = residents.bytes_max;
    snapshot.resident_used_bytes = residents.bytes;
    snapshot.resident_tensors = residents.tensors;
    snapshot.residents_ended = residents.ended;
  }
  return snapshots;
}

}  // namespace warpcall
