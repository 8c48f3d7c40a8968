#include "server/engine/engine.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/common/status_macros.h"
#include "server/engine/execution.h"

namespace warpcall {
namespace {

// What a request costs a device: the link to the host, the arithmetic and a fixed part. Only the
// proportions matter, and only between devices of one kind. Rates of an H200: both directions of
// PCIe, float32 matmul, a small request from enqueued to done.
int64_t PredictedNs(const Op& op, const Problem& problem) {
  constexpr double kFixedNs = 15'000;
  constexpr double kBytesPerNs = 50;
  constexpr double kFlopsPerNs = 40'000;
  const Work work = op.work(problem);
  return static_cast<int64_t>(kFixedNs + static_cast<double>(work.bytes) / kBytesPerNs +
                              static_cast<double>(work.flops) / kFlopsPerNs);
}

}  // namespace

Engine::Runner::Runner(std::unique_ptr<Device> owned_device, Buffer staging_memory,
                       const EngineOptions& options)
    : device(std::move(owned_device)),
      staging(std::move(staging_memory)),
      scheduler(options.queue, options.clock),
      busy(options.clock) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Registry& registry,
                                                       std::vector<std::unique_ptr<Device>> devices,
                                                       const EngineOptions& options) {
  if (devices.empty()) return absl::InvalidArgumentError("there is no device to serve");
  std::unique_ptr<Engine> engine(new Engine(registry, options));
  for (std::unique_ptr<Device>& device : devices)
    RETURN_IF_ERROR(engine->AddDevice(std::move(device), options));
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
  const LaneShared shared = {runner.device.get(), &runner.scheduler, &runner.staging,
                             &runner.busy,        options.clock,     [this] { NoteLoss(); }};
  for (int i = 0; i < options.lanes_per_device; ++i) {
    std::unique_ptr<Executor> executor;
    ASSIGN_OR_RETURN(executor, options.create_executor == nullptr
                                   ? CreateLocalExecutor(runner.device.get(), options.clock)
                                   : options.create_executor(runner.device.get()));
    runner.lanes.push_back(std::make_unique<Lane>(shared, std::move(executor)));
  }
  return absl::OkStatus();
}

Engine::~Engine() { Refuse(); }

absl::StatusOr<Engine::Choice> Engine::Choose(const Kernel& kernel,
                                              absl::string_view implementation,
                                              absl::string_view device_name,
                                              const Problem& problem) const {
  RETURN_IF_ERROR(registry_.CheckImplementationName(kernel, implementation));
  std::vector<std::string> names;
  std::vector<std::string> reasons;
  bool named = false;
  bool lost = false;
  std::optional<Choice> best;
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& properties = device(i).properties();
    names.push_back(properties.name);
    if (!device_name.empty() && properties.name != device_name) continue;
    named = true;
    if (best.has_value() && device(best->device).properties().kind != properties.kind) continue;
    if (!device(i).healthy()) {
      lost = true;
      reasons.push_back(absl::StrCat(properties.name, ": the device was lost"));
      continue;
    }
    absl::StatusOr<const Row*> row = registry_.Select(kernel, implementation, problem, properties);
    if (!row.ok())
      reasons.push_back(std::string(row.status().message()));
    else if (!best.has_value() || LessLoaded(i, best->device))
      best = Choice{i, *row, 0};
  }
  if (best.has_value()) {
    best->predicted_ns = PredictedNs(*kernel.op, problem);
    return *best;
  }
  if (!named) {
    return absl::NotFoundError(absl::StrCat(
        "device \"", device_name, "\" does not exist; there is: ", absl::StrJoin(names, ", ")));
  }
  const std::string message = absl::StrJoin(reasons, "; ");
  return lost ? absl::UnavailableError(message) : absl::UnimplementedError(message);
}

bool Engine::LessLoaded(int a, int b) const {
  const Runner& first = *runners_[static_cast<size_t>(a)];
  const Runner& second = *runners_[static_cast<size_t>(b)];
  return std::pair(first.outstanding_ns.load(), first.assigned_ns.load()) <
         std::pair(second.outstanding_ns.load(), second.assigned_ns.load());
}

void Engine::NoteLoss() {
  const DeviceKind kind = device(0).properties().kind;
  for (int i = 0; i < device_count(); ++i)
    if (device(i).properties().kind == kind && device(i).healthy()) return;
  if (!devices_lost_.exchange(true)) on_devices_lost_();
}

absl::Status Engine::Submit(std::unique_ptr<Job>* job) {
  Runner& runner = *runners_[static_cast<size_t>((*job)->device)];
  const int64_t predicted_ns = (*job)->predicted_ns;
  (*job)->done = [this, &runner, predicted_ns, done = std::move((*job)->done)](
                     absl::Status status, StagingBuffers outputs) mutable {
    runner.outstanding_ns.fetch_sub(predicted_ns);
    done(std::move(status), std::move(outputs));
    JobEnded();
  };
  {
    absl::MutexLock lock(&mutex_);
    ++accepted_;
  }
  runner.outstanding_ns.fetch_add(predicted_ns);
  absl::Status status = runner.scheduler.Submit(job);
  if (status.ok()) {
    runner.assigned_ns.fetch_add(predicted_ns);
  } else {
    runner.outstanding_ns.fetch_sub(predicted_ns);
    JobEnded();
  }
  return status;
}

void Engine::JobEnded() {
  absl::MutexLock lock(&mutex_);
  if (--accepted_ == 0) idle_.SignalAll();
}

void Engine::Cancel(int device, int64_t deadline_ns, uint64_t id) {
  std::unique_ptr<Job> job =
      runners_[static_cast<size_t>(device)]->scheduler.Remove(deadline_ns, id);
  if (job == nullptr) return;
  absl::Status status = CheckStillWanted(*job, clock_());
  auto done = std::move(job->done);
  job.reset();
  done(std::move(status), {});
}

void Engine::Refuse() {
  for (const std::unique_ptr<Runner>& runner : runners_) runner->scheduler.Close();
}

bool Engine::AwaitIdle(absl::Duration timeout) {
  const absl::Time give_up = absl::Now() + timeout;
  absl::MutexLock lock(&mutex_);
  while (accepted_ > 0)
    if (idle_.WaitWithDeadline(&mutex_, give_up)) break;
  return accepted_ == 0;
}

std::vector<DeviceSnapshot> Engine::Snapshot() const {
  std::vector<DeviceSnapshot> snapshots;
  for (const std::unique_ptr<Runner>& runner : runners_) {
    const QueueSnapshot queue = runner->scheduler.Snapshot();
    const MemoryUsage memory = runner->device->memory_usage();
    DeviceSnapshot& snapshot = snapshots.emplace_back();
    snapshot.queue_depth = queue.depth;
    snapshot.queue_bytes = queue.bytes;
    snapshot.queue_oldest_age_seconds = queue.oldest_age_seconds;
    snapshot.staging_total_bytes = static_cast<int64_t>(runner->staging.total_bytes());
    snapshot.staging_used_bytes = static_cast<int64_t>(runner->staging.used_bytes());
    snapshot.memory_total_bytes = memory.total_bytes;
    snapshot.memory_used_bytes = memory.used_bytes;
    snapshot.memory_reserved_bytes = memory.reserved_bytes;
    snapshot.healthy = runner->device->healthy();
    snapshot.busy_seconds = static_cast<double>(runner->busy.busy_ns()) / 1e9;
  }
  return snapshots;
}

}  // namespace warpcall
