#include "server/engine/engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/common/status_macros.h"

namespace warpcall {

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
  std::unique_ptr<Engine> engine(new Engine(registry, options.clock));
  for (std::unique_ptr<Device>& device : devices)
    RETURN_IF_ERROR(engine->AddDevice(std::move(device), options));
  return engine;
}

absl::Status Engine::AddDevice(std::unique_ptr<Device> device, const EngineOptions& options) {
  Buffer staging_memory;
  ASSIGN_OR_RETURN(staging_memory, device->AllocateStaging(options.staging_bytes));
  Runner& runner = *runners_.emplace_back(
      std::make_unique<Runner>(std::move(device), std::move(staging_memory), options));
  const LaneShared shared = {runner.device.get(), &runner.scheduler, &runner.staging, &runner.busy,
                             options.clock};
  for (int i = 0; i < options.lanes_per_device; ++i) {
    std::unique_ptr<Stream> stream;
    ASSIGN_OR_RETURN(stream, runner.device->CreateStream());
    runner.lanes.push_back(std::make_unique<Lane>(shared, std::move(stream)));
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
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& properties = device(i).properties();
    names.push_back(properties.name);
    if (!device_name.empty() && properties.name != device_name) continue;
    named = true;
    if (!device(i).healthy()) {
      lost = true;
      reasons.push_back(absl::StrCat(properties.name, ": the device was lost"));
      continue;
    }
    absl::StatusOr<const Row*> row = registry_.Select(kernel, implementation, problem, properties);
    if (row.ok()) return Choice{i, *row};
    reasons.push_back(std::string(row.status().message()));
  }
  if (!named) {
    return absl::NotFoundError(absl::StrCat(
        "device \"", device_name, "\" does not exist; there is: ", absl::StrJoin(names, ", ")));
  }
  const std::string message = absl::StrJoin(reasons, "; ");
  return lost ? absl::UnavailableError(message) : absl::UnimplementedError(message);
}

absl::Status Engine::Submit(std::unique_ptr<Job>* job) {
  (*job)->done = [this, done = std::move((*job)->done)](absl::Status status,
                                                        StagingBuffers outputs) mutable {
    done(std::move(status), std::move(outputs));
    JobEnded();
  };
  {
    absl::MutexLock lock(&mutex_);
    ++accepted_;
  }
  absl::Status status = runners_[static_cast<size_t>((*job)->device)]->scheduler.Submit(job);
  if (!status.ok()) JobEnded();
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
    snapshot.busy_seconds = static_cast<double>(runner->busy.busy_ns()) / 1e9;
  }
  return snapshots;
}

}  // namespace warpcall
