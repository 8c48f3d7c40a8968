// Owns the devices and their serving parts: per device a queue, a staging pool and its lanes.
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
#include "server/engine/residents.h"
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
  // The submitting thread runs jobs of at most 256 KiB of operands that are measured to take the
  // CPU device at most this long, if nothing of their principal waits. 0: it runs none.
  int64_t run_by_caller_ns_max = 0;
  // How long a GPU's idle lane looks for more work before it sleeps.
  int64_t lane_spin_ns = 0;
  // Limit of the tensors that stay on each device; negative: the device's own limit.
  int64_t resident_bytes_max = -1;
  Residents::Options residents = {};  // the clock is the engine's
  // Memory that each lane may keep for graphs.
  size_t graph_bytes_max = size_t{256} << 20;
  // Threads that copy large inputs, including the lane's own.
  int copy_threads = 1;
  // Longest that a job may hold its lane: work known to take longer is refused, a job that does
  // take longer is stopped.
  int64_t run_ns_max = kNoDeadline;
  Clock clock = MonotonicNs;
  // True: lanes and schedulers have threads. False: the engine's owner does the threads' work, in
  // an order and at times of its own choice; see Engine::parts.
  bool threads = true;
  // Creates the executor of a lane's jobs. Null: a stream of the device, in this process.
  std::function<absl::StatusOr<std::unique_ptr<Executor>>(Device*)> create_executor;
  // Called once, on any thread, when every device of the first one's kind was lost. The server is
  // then of no use, and only a new process gets the devices back.
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
  // Waits until all accepted jobs are done.
  ~Engine();

  int device_count() const { return static_cast<int>(runners_.size()); }
  const Device& device(int index) const { return *runners_[static_cast<size_t>(index)]->device; }
  // Number of healthy devices of the kind.
  int CountHealthy(DeviceKind kind) const;
  // Host memory of the tensors that stay: those of the CPU devices.
  int64_t ResidentHostBytes() const;
  // Staging memory of each device.
  int64_t staging_bytes() const {
    return static_cast<int64_t>(runners_.front()->staging.total_bytes());
  }

  // Tensors that stay on its devices.
  Residents& residents() { return *residents_; }

  // For choosers, which the engine outlives.
  const Choices& choices() const { return choices_; }
  // The first candidate of a temporary Chooser.
  absl::StatusOr<Candidate> Choose(const Kernel& kernel, absl::string_view implementation,
                                   absl::string_view device, const Problem& problem) const {
    return Chooser(&choices_, {&kernel, implementation, device})
        .Next(absl::MakeConstSpan(&problem, 1));
  }

  // RESOURCE_EXHAUSTED when one more job of `principal` would surely be refused, whatever the job
  // and its device. Saves the caller from parsing such a request.
  absl::Status CheckRoomFor(uint64_t principal) const;

  // Accepts the job, or leaves it and returns the reason, as Scheduler::Submit does. An accepted
  // job is done exactly once, perhaps before Submit returns.
  absl::Status Submit(std::unique_ptr<Job>* job);

  // Ends a waiting job with CANCELLED, or with DEADLINE_EXCEEDED if its deadline has passed. A job
  // that holds a lane ends when it next checks. REQUIRES: the job's `cancelled` was set before, or
  // its deadline has passed.
  void Cancel(int device, const JobKey& key);

  // From now on Submit returns UNAVAILABLE, except for jobs that continue a request.
  void BeginDrain();
  // Returns true if every accepted job was done before `timeout` passed.
  bool AwaitIdle(absl::Duration timeout);

  // Jobs that EndAll found.
  struct Unfinished {
    int64_t waiting = 0;
    int64_t running = 0;
  };
  // Ends all accepted jobs with UNAVAILABLE: waiting jobs now, running jobs when they next check
  // their stop flag. A device with a process of its own ends running jobs by force. The engine
  // accepts nothing from then on.
  Unfinished EndAll();
  // Jobs that the lanes run.
  std::vector<Scheduler::Running> RunningJobs() const;

  // The table by which implementations are chosen; it knows this engine's devices by their numbers.
  TuningTable& tuning() { return tuning_; }

  // Sets the rate that trials of an implementation (Row::id) on this machine have shown; it
  // predicts work before the first job.
  void SetRate(int row, const ServiceRate& rate) { history_.SetRate(row, rate); }

  // Adds a reading of the speed of a copy within the device's memory.
  void SetBandwidth(int device, double bytes_per_second);
  // The best reading: other use of the memory only lowers a reading.
  Bandwidth bandwidth(int device) const;
  // Adds a reading of the speed of the device's multiply-adds; the best one counts, too.
  void SetMultiplyAdds(int device, Arithmetic arithmetic, double flops_per_second);

  std::vector<DeviceSnapshot> Snapshot() const;

  // The parts that a device's threads use: lane threads run the jobs of TryNext until `over`, a
  // timer calls EndStarved. For an owner that does so itself. REQUIRES: there are no threads.
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
    mutable absl::Mutex ceilings_mutex;
    double bandwidths[2] ABSL_GUARDED_BY(ceilings_mutex) = {0, 0};  // the best two readings
    MultiplyAddRates multiply_adds ABSL_GUARDED_BY(ceilings_mutex) = {};
    // Lanes for jobs that the caller runs. If all are in use, the job goes to the queue.
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
  void HandleLoss();
  absl::Status AddDevice(std::unique_ptr<Device> device, const EngineOptions& options);
  bool AnyPrepares(DeviceKind kind) const;
  absl::Status RunOrQueue(Runner* runner, std::unique_ptr<Job>* job);
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
  int64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;  // accepted and not done
  std::vector<std::unique_ptr<Runner>> runners_;
  std::unique_ptr<Residents> residents_;  // last: its memory is the devices'
};

}  // namespace warpcall
