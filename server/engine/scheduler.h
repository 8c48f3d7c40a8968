// Admission and order of the jobs of one device: what is let in, who is next, who has to make room.
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
#include "server/housekeeper.h"

namespace warpcall {

// Limits on the jobs that wait.
struct QueueLimits {
  int64_t requests_max;
  int64_t bytes_max;                     // of inputs
  int64_t work_ns_max = 60'000'000'000;  // predicted; one job alone may be longer
};

struct QueueSnapshot {
  int64_t depth = 0;
  int64_t bytes = 0;
  int64_t work_ns = 0;  // predicted, of one lane
  double oldest_age_seconds = 0;
};

// A device has lanes that run what is prepared, and one where rows may take their time to make a
// plan (Implementation::slow_to_plan), so that nobody but those who ask for the same waits for
// that.
enum class LaneKind : uint8_t { kOrdinary, kPreparing };

// Of each device for which the registry has implementations that prepare.
inline constexpr int kPreparingLanes = 1;

struct SchedulerOptions {
  QueueLimits limits;
  int lanes = 1;  // ordinary ones: how many jobs the device works on at once
  // How long a lane that has no more to do looks for more before it sleeps, while work comes back
  // as fast as that; a fifth of it otherwise.
  int64_t spin_ns = 0;
  Clock clock = MonotonicNs;
  StagingPool* staging = nullptr;  // from which jobs get theirs; outlives the scheduler
  // Calls EndStarved by a timer; without one the scheduler's owner calls it.
  bool timer = true;
};

// Thread-safe.
class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  // Staging may come back at any time, also while this runs.
  ~Scheduler();

  // Takes the job, or leaves it where it is and says why: RESOURCE_EXHAUSTED names the limit and
  // when to retry, or says that measured jobs ahead of it leave no time before its deadline;
  // DEADLINE_EXCEEDED and CANCELLED as CheckStillWanted, the former also when jobs of its kind are
  // measured to take longer than it has; UNAVAILABLE after Refuse. A full queue makes room for a
  // principal that holds less than another: the other's last job is ended with
  // RESOURCE_EXHAUSTED, on this thread.
  absl::Status Submit(std::unique_ptr<Job>* job);

  // RESOURCE_EXHAUSTED, as Submit would say, when one more job of `principal` would surely be
  // refused whatever it is: as many wait as may, others of its own among them, and no other
  // principal holds more. Cheap while there is room.
  absl::Status CheckRoomFor(uint64_t principal) const;

  // For a job that takes less time than a lane to wake: true when nothing of its principal waits,
  // so that the caller may run it itself at once; false when it should be submitted. Errors as of
  // Submit.
  absl::StatusOr<bool> Pass(const Job& job);

  // Takes a waiting job back; null when it is not waiting.
  std::unique_ptr<Job> Remove(const JobKey& key);

  // The next job, with its staging, waiting for one; null once closed and empty. Jobs for which
  // there is no staging let others pass, and end with RESOURCE_EXHAUSTED after two seconds, whether
  // or not a lane is here to ask for them: see EndStarved. Of several lanes one is kept for short
  // work: jobs that may be long wait while all others have such.
  //
  // A job that is to be prepared is the preparing lane's, and others for the same problem wait
  // until that is done. If it may be long by itself, it is prepared where it runs, on an ordinary
  // lane.
  std::unique_ptr<Job> Next(LaneKind kind = LaneKind::kOrdinary);

  // A lane that looks for a job, from its first look until one finds a job, or that there will be
  // none.
  struct IdleLane {
    LaneKind kind = LaneKind::kOrdinary;
    bool has_looked = false;
    bool spins = false;   // is to look again when there is work, or when it has done so for long
    bool sleeps = false;  // is to look again when this has become false, which wakes it
    absl::CondVar woken;
  };
  struct Found {
    std::unique_ptr<Job> job;
    bool over = false;  // closed and empty
  };
  // One look: Next without the waits between looks. With neither a job nor `over`, `lane` must
  // stay until it has looked again, which it does as it then says.
  Found TryNext(IdleLane* lane);

  // Ends jobs for which there has been no staging for two seconds. Called within
  // kStarvedCheckPeriod of the last time while `watches`: by the scheduler's timer, if it has one.
  void EndStarved();
  bool watches() const;
  static constexpr int64_t kStarvedCheckPeriodNs = 100'000'000;

  // Staging for a job from Pass. False when there is none at present.
  bool TakeStaging(Job* job) const;
  // Staging came back.
  void StagingReturned();
  // A job from Next has left its lane. `is_prepared`: its row now is, for its problem.
  void Finished(uint64_t id, bool is_prepared = false);

  // A job that a lane works on.
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
  void Refuse();
  // No job is accepted any more; those waiting are still handed out.
  void Close();
  // Close, and nothing waits any more: to be ended by the caller.
  std::vector<std::unique_ptr<Job>> CloseAndTakeAll();

  QueueSnapshot Snapshot() const;

 private:
  // Jobs that lost their place, and why: to be ended when the lock is free.
  struct Displaced {
    std::unique_ptr<Job> job;
    absl::Status status;
  };
  using DisplacedJobs = absl::InlinedVector<Displaced, 1>;
  static void End(DisplacedJobs displaced);

  // Aborts where the members contradict each other. Looks at all jobs where no threads of the
  // engine's own work, as in a simulation.
  void CheckInvariants() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOpen(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDeadline(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What there is too little of, when nobody can make room for `job`.
  std::optional<Resource> MakeRoom(const Job& job, DisplacedJobs* displaced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why `job` is not let in, or, `displaced`, loses its place, which it has left.
  absl::Status Full(Resource resource, const Job& job, bool displaced) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string FullOfRequests(int64_t held) const;
  int64_t LimitOf(Resource resource) const;
  absl::Status CheckStaging(const Job& job) const;
  std::unique_ptr<Job> TakeNext(LaneKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether work that may be long must wait, so that a lane is left for what is not.
  bool HoldsBackLong() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a lane of this kind must leave the job, and not for want of staging.
  bool HoldsBack(Job& job, LaneKind kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Found Look(IdleLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DisplacedJobs TakeStarved() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Spin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sleep(IdleLane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake(LaneKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One of each kind that may have something to do.
  void WakeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the lanes away when nothing will come any more.
  void WakeAllIfOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAfterRemoval() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until the lanes have done `work_ns` behind what they run.
  int64_t WaitNs(int64_t work_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SchedulerOptions options_;
  const QueueLimits& limits_ = options_.limits;
  const Clock& clock_ = options_.clock;
  mutable absl::Mutex mutex_;
  // By kind. The one that became idle last is woken first: its core's caches still know the work.
  std::vector<IdleLane*> idle_[2] ABSL_GUARDED_BY(mutex_);
  // As many jobs were waiting as may, and nobody has found it otherwise since.
  mutable std::atomic<bool> was_full_{false};
  FairQueue waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Running> running_ ABSL_GUARDED_BY(mutex_);
  bool spinning_ ABSL_GUARDED_BY(mutex_) = false;        // a lane
  std::atomic<bool> work_waits_{false};                  // for the lane that spins
  int64_t idle_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;    // when a lane began to spin; 0: work came
  bool comes_back_soon_ ABSL_GUARDED_BY(mutex_) = true;  // the last work, within spin_ns
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;  // EndStarved is to be called again
  std::unique_ptr<Timer> timer_;                   // null: none. Last: works on all of the above
};

}  // namespace warpcall
