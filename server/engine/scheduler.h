// Admission and order of one device's jobs: which are admitted, run next, or make room for others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/fair_queue.h"
#include "server/engine/job.h"
#include "server/system/housekeeper.h"

namespace warpcall {

// Limits on the jobs that wait.
struct QueueLimits {
  int64_t requests_max;
  int64_t bytes_max;                     // input bytes
  int64_t work_ns_max = 60'000'000'000;  // predicted; one job alone may be longer
};

struct QueueSnapshot {
  int64_t depth = 0;
  int64_t bytes = 0;
  int64_t work_ns = 0;  // predicted lane time
  double oldest_age_seconds = 0;
};

// A device has lanes that run prepared jobs, and one where implementations may take their time to
// make a plan (Implementation::slow_to_plan). So only requests for the same problem wait for the
// plan.
enum class LaneKind : uint8_t { kOrdinary, kPreparing };

// Number of preparing lanes per device for which the registry has implementations that prepare.
inline constexpr int kPreparingLanes = 1;

struct SchedulerOptions {
  QueueLimits limits;
  int lanes = 1;  // ordinary ones: the jobs that the device runs at once
  // How long an idle lane looks for more work before it sleeps, if work has been returning within
  // that time; otherwise a fifth of it.
  int64_t spin_ns = 0;
  Clock clock = MonotonicNs;
  StagingPool* staging = nullptr;  // source of the jobs' staging; outlives the scheduler
  // True: a timer calls EndStarved. False: the scheduler's owner calls it.
  bool timer = true;
};

// Thread-safe.
class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  // Staging may be returned at any time, also while this runs.
  ~Scheduler();

  // Accepts the job, or leaves it in place and returns the reason. RESOURCE_EXHAUSTED names the
  // limit and when to retry, or says that measured jobs ahead of it leave no time before its
  // deadline. DEADLINE_EXCEEDED and CANCELLED as for CheckStillWanted, the former also when jobs of
  // its kind are measured to take longer than it has; UNAVAILABLE after BeginDrain. A full queue
  // makes room for a principal that holds less than another: this thread ends the other's last job
  // with RESOURCE_EXHAUSTED.
  absl::Status Submit(std::unique_ptr<Job>* job);

  // RESOURCE_EXHAUSTED, as from Submit, when one more job of `principal` would surely be refused
  // whatever it is: the queue is full, holds jobs of `principal`, and no other principal holds
  // more. Cheap while there is room.
  absl::Status CheckRoomFor(uint64_t principal) const;

  // For a job that takes less time than a lane takes to wake. True when nothing of its principal
  // waits: the caller may run the job itself at once. False when the caller should submit it.
  // Errors as for Submit.
  absl::StatusOr<bool> MayRunAtOnce(const Job& job);

  // Removes a waiting job; null when it is not waiting.
  std::unique_ptr<Job> Remove(const JobKey& key);

  // Waits for the next job, with its staging; null once closed and empty. Jobs for which there is
  // no staging let others pass, and end with RESOURCE_EXHAUSTED after two seconds even if no lane
  // asks for them (EndStarved). One of several lanes is kept for short work: jobs that may be long
  // wait while all other lanes have such jobs.
  //
  // A job that is to be prepared goes to the preparing lane, and others for the same problem wait
  // until the preparation is done. A job that may be long anyway is prepared where it runs, on an
  // ordinary lane.
  std::unique_ptr<Job> Next(LaneKind kind = LaneKind::kOrdinary);

  // An idle lane; it lives from its first look until it finds a job or the scheduler is closed and
  // empty.
  struct IdleLane {
    LaneKind kind = LaneKind::kOrdinary;
    bool has_looked = false;
    bool spins = false;   // must look again when work comes, or when the spin time is over
    bool sleeps = false;  // must look again when this becomes false, which wakes the lane
    absl::CondVar woken;
  };
  struct Found {
    std::unique_ptr<Job> job;
    bool over = false;  // closed and empty
  };
  // Looks once: Next without the waits between looks. If it returns neither a job nor `over`,
  // `lane` must stay alive and look again, when its flags say so.
  Found TryNext(IdleLane* lane);

  // Ends jobs for which there has been no staging for two seconds. While `watches`, the scheduler's
  // timer, or else its owner, calls it again within kStarvedCheckPeriod.
  void EndStarved();
  bool watches() const;
  static constexpr int64_t kStarvedCheckPeriodNs = 100'000'000;

  // Allocates staging for a job. False when there is none at present.
  bool TakeStaging(Job* job) const;
  // Reports that staging was returned.
  void StagingReturned();
  // Reports that a job from Next left its lane. `is_prepared`: its preparation is done.
  void Finished(uint64_t id, bool is_prepared = false);

  // A job that a lane runs.
  struct Running {
    uint64_t id;
    uint64_t principal;
    const Row* row;
    int64_t start_ns;
    int64_t end_ns;  // expected
    bool is_long;    // perhaps
    LaneKind lane;
    std::shared_ptr<Preparation> preparation;  // null: none
  };
  std::vector<Running> RunningJobs() const;

  // From now on only jobs that continue a request are accepted.
  void BeginDrain();
  // Accepts no more jobs; waiting jobs are still handed out.
  void Close();
  // Closes, and removes all waiting jobs, which the caller ends.
  std::vector<std::unique_ptr<Job>> CloseAndTakeAll();

  QueueSnapshot Snapshot() const;

 private:
  // Jobs that lost their place, each with its status; ended after the lock is released.
  struct Displaced {
    std::unique_ptr<Job> job;
    absl::Status status;
  };
  using DisplacedJobs = absl::InlinedVector<Displaced, 1>;
  static void End(DisplacedJobs displaced);

  // Aborts if the members contradict each other. Looks at all jobs if the engine has no threads of
  // its own, as in a simulation.
  void CheckInvariants() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOpen(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDeadline(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Displaces jobs to make room for `job`. Returns the lacking resource if that is impossible.
  std::optional<Resource> MakeRoom(const Job& job, DisplacedJobs* displaced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The status of a `job` that is not admitted or, if `displaced`, has lost its place in the queue.
  absl::Status Full(Resource resource, const Job& job, bool displaced) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string FullOfRequests(int64_t held) const;
  int64_t LimitOf(Resource resource) const;
  absl::Status CheckStaging(const Job& job) const;
  std::unique_ptr<Job> TakeNext(LaneKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if work that may be long must wait, so that one lane stays free for short work.
  bool HoldsBackLong() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if a lane of this kind must leave the job for a reason other than missing staging.
  bool HoldsBack(Job& job, LaneKind kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Found Look(IdleLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DisplacedJobs TakeStarved() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Spin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sleep(IdleLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake(LaneKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes one lane of each kind that may have something to do.
  void WakeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes all lanes, so that they leave, when no more jobs will come.
  void WakeAllIfOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAfterRemoval() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Time until the lanes have done `work_ns` behind their running jobs.
  int64_t WaitNs(int64_t work_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SchedulerOptions options_;
  const QueueLimits& limits_ = options_.limits;
  const Clock& clock_ = options_.clock;
  mutable absl::Mutex mutex_;
  // By kind. The lane that became idle last is woken first: its core's caches are still warm.
  std::vector<IdleLane*> idle_[2] ABSL_GUARDED_BY(mutex_);
  // The queue was full, and no thread has found otherwise since.
  mutable std::atomic<bool> was_full_{false};
  FairQueue waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Running> running_ ABSL_GUARDED_BY(mutex_);
  bool spinning_ ABSL_GUARDED_BY(mutex_) = false;        // a lane spins
  std::atomic<bool> work_waits_{false};                  // for the lane that spins
  int64_t idle_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;    // when a lane began to spin; 0: work came
  bool comes_back_soon_ ABSL_GUARDED_BY(mutex_) = true;  // the last work, within spin_ns
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;  // EndStarved is to be called again
  std::unique_ptr<Timer> timer_;  // calls EndStarved; null: none. Last: it uses all of the above
};

}  // namespace warpcall
