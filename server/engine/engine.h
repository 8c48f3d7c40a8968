// Owns the devices and what serves them: per device a queue, a staging pool and its lanes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/registry.h"
#include "proto/common/steady_wait.h"
#include "server/engine/balancer.h"
#include "server/engine/chooser.h"
#include "server/engine/clock.h"
#include "server/engine/executor.h"
#include "server/engine/job.h"
#include "server/engine/lane.h"
#include "server/engine/metrics_sink.h"
#include "server/engine/plan_refusals.h"
#include "server/engine/preparations.h"
#include "server/engine/run_watch.h"
#include "server/engine/scheduler.h"
#include "server/engine/staging_pool.h"
#include "server/engine/tuning_table.h"
#include "server/runtime/device.h"

namespace warpcall {

struct EngineOptions {
  int lanes_per_device = 2;
  int lanes_per_gpu = 2;
  size_t staging_bytes = size_t{1} << 30;  // per device
  QueueLimits queue = {1024, int64_t{1} << 30};
  // Jobs of at most 256 KiB of operands that are measured to take the CPU device at most this long
  // are run by the thread that submits them, when nothing of their principal waits. 0: none.
  int64_t run_by_caller_ns_max = 0;
  // How long a GPU's lane that has no more to do looks for more before it sleeps.
  int64_t lane_spin_ns = 0;
  // Threads that copy large inputs, a lane's own included.
  int copy_threads = 1;
  // For which a job may hold its lane: work that is known to take longer is refused, what does so
  // stopped.
  int64_t run_ns_max = kNoDeadline;
  Clock clock = MonotonicNs;
  // Whether lanes and schedulers have threads. False: whoever has the engine does what those would
  // do, in an order and at times of its own: see Engine::parts.
  bool threads = true;
  // What carries out a lane's jobs. Null: a stream of the device, in this process.
  std::function<absl::StatusOr<std::unique_ptr<Executor>>(Device*)> create_executor;
  // Called once, on any thread, when every device of the first one's kind was lost: what the server
  // is there for is gone, and only a new process gets it back.
  std::function<void()> on_devices_lost = [] {};
};

// A stream of the device, in this process.
absl::StatusOr<std::unique_ptr<Executor>> CreateLocalExecutor(Device* device, Clock clock);

// Thread-safe once created.
class Engine {
 public:
  // `devices` in order of preference, at least one; `registry` outlives the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      const Registry& registry, std::vector<std::unique_ptr<Device>> devices,
      const EngineOptions& options);
  // Finishes what was accepted.
  ~Engine();

  int device_count() const { return static_cast<int>(runners_.size()); }
  const Device& device(int index) const { return *runners_[static_cast<size_t>(index)]->device; }
  // How many devices of the kind work.
  int CountHealthy(DeviceKind kind) const;
  // Of each device.
  int64_t staging_bytes() const {
    return static_cast<int64_t>(runners_.front()->staging.total_bytes());
  }

  // For choosers, which the engine outlives.
  const Choices& choices() const { return choices_; }
  // The first candidate of a Chooser that nothing else is asked of.
  absl::StatusOr<Candidate> Choose(const Kernel& kernel, absl::string_view implementation,
                                   absl::string_view device, const Problem& problem) const {
    return Chooser(&choices_, {&kernel, implementation, device})
        .Next(absl::MakeConstSpan(&problem, 1));
  }

  // RESOURCE_EXHAUSTED when one more job of `principal` would surely be refused, whatever it is
  // and whichever device it is for: so that nobody needs to look what it is.
  absl::Status CheckRoomFor(uint64_t principal) const;

  // Takes the job or leaves it with the reason, as Scheduler::Submit. A job that was taken is done
  // exactly once, perhaps before Submit returns.
  absl::Status Submit(std::unique_ptr<Job>* job);

  // Ends a job with CANCELLED, or DEADLINE_EXCEEDED when that has passed, if it still waits; one
  // that a lane has taken ends when it looks. REQUIRES: the job's `cancelled` was set before.
  void Cancel(int device, const JobKey& key);

  // From now on Submit answers UNAVAILABLE, but for jobs that continue a request.
  void Refuse();
  // True when every accepted job was done before `timeout` passed.
  bool AwaitIdle(absl::Duration timeout);

  // What EndAll found.
  struct Unfinished {
    int64_t waiting = 0;
    int64_t running = 0;
  };
  // Ends what was accepted with UNAVAILABLE: what waits now, what runs when it looks at its stop
  // flag, or else by force where a device has a process of its own. Nothing is accepted from then
  // on.
  Unfinished EndAll();
  // What lanes work on.
  std::vector<Scheduler::Running> RunningJobs() const;

  // By which rows are chosen; it knows this engine's devices by their numbers.
  TuningTable& tuning() { return tuning_; }

  // What trials of a row (Row::id) on this machine have shown: predicts work that no job was of
  // yet.
  void SetRate(int row, const ServiceRate& rate) { history_.SetRate(row, rate); }

  // A reading of what a copy within the device's memory reaches.
  void NoteBandwidth(int device, double bytes_per_second);
  // The best reading: whatever else uses the memory only lowers it.
  Bandwidth bandwidth(int device) const;

  std::vector<DeviceSnapshot> Snapshot() const;

  // What a device's threads work on: each lane's thread runs what TryNext finds until that is over,
  // and one ends what starves. For whoever does so in their place. REQUIRES: there are no threads.
  struct Parts {
    StagingPool* staging;
    Scheduler* scheduler;
    std::vector<Lane*> lanes;        // ordinary ones
    Lane* preparing_lane = nullptr;  // null: nothing is prepared
  };
  Parts parts(int device);

 private:
  struct CallerLane;
  struct Runner {
    Runner(std::unique_ptr<Device> owned_device, Buffer staging_memory,
           const EngineOptions& options);

    std::unique_ptr<Device> device;
    StagingPool staging;
    Scheduler scheduler;
    Preparations preparations;
    PlanRefusals refusals;
    BusyMeter busy;
    mutable absl::Mutex bandwidth_mutex;
    double bandwidths[2] ABSL_GUARDED_BY(bandwidth_mutex) = {0, 0};  // the best two readings
    // For jobs that the caller runs. Not waited for: one that is taken sends the job to the queue.
    std::vector<std::unique_ptr<CallerLane>> caller_lanes;
    std::vector<std::unique_ptr<Lane>> lanes;
    std::unique_ptr<Lane> preparing_lane;              // null: nothing is prepared
    std::vector<std::unique_ptr<LaneThread>> threads;  // last: they use the others
  };
  struct CallerLane {
    CallerLane(const LaneShared& shared, std::unique_ptr<Executor> executor)
        : lane(shared, std::move(executor)) {}
    absl::Mutex in_use;
    Lane lane ABSL_GUARDED_BY(in_use);
  };

  Engine(const Registry& registry, const EngineOptions& options);
  void NoteLoss();
  absl::Status AddDevice(std::unique_ptr<Device> device, const EngineOptions& options);
  bool AnyPrepares(DeviceKind kind) const;
  absl::Status Place(Runner* runner, std::unique_ptr<Job>* job);
  absl::Status RunHere(Runner* runner, std::unique_ptr<Job>* job);
  void JobEnded();

  const Registry& registry_;
  RunLimits limits_;
  const Clock& clock_ = limits_.clock;
  const std::function<void()> on_devices_lost_;
  const int64_t run_by_caller_ns_max_;
  ServiceHistory history_;
  TuningTable tuning_;
  Balancer balancer_;
  Choices choices_ = {&registry_, &tuning_, &history_, &balancer_, {}};
  cpu::ThreadPool copiers_;
  std::atomic<bool> devices_lost_{false};
  absl::Mutex mutex_;
  SteadyCondVar idle_;
  int64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;  // and not done
  std::vector<std::unique_ptr<Runner>> runners_;
};

}  // namespace warpcall
