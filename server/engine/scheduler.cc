#include "server/engine/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/human_figures.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"

namespace warpcall {
namespace {

constexpr int64_t kPushbackMsMin = 1;
constexpr int64_t kPushbackMsMax = 5'000;

// Longest that a job waits for others to return staging: a client that reads its answers more
// slowly must not hold up the rest.
constexpr int64_t kStarvedNsMax = 2'000'000'000;
// How long a client without staging should wait before it retries.
constexpr int64_t kStagingPushbackMs = 100;

// Divides the spin time when work does not come back soon.
constexpr int64_t kShortSpins = 5;

// A job that may hold its lane this long counts as long: other jobs wait behind it or, in the worst
// case, behind one in each lane.
constexpr int64_t kLongNs = 100'000'000;

bool MayBeLong(const Job& job) { return job.predicted_ns_at_most > kLongNs; }

// A job whose preparation was done while it waited goes to an ordinary lane.
LaneKind LaneOf(const Job& job) {
  return job.is_to_be_prepared && !job.is_prepared() ? LaneKind::kPreparing : LaneKind::kOrdinary;
}

// Sizes of the inputs, then of the outputs.
absl::InlinedVector<size_t, 3> StagingSizes(const Job& job) {
  absl::InlinedVector<size_t, 3> sizes;
  const auto add = [&](const TensorSpec& spec) {
    sizes.push_back(job.IsResident(sizes.size()) ? 0 : spec.bytes());
  };
  for (const TensorSpec& spec : job.problem.inputs) add(spec);
  for (const TensorSpec& spec : job.problem.outputs) add(spec);
  return sizes;
}

constexpr Resource kResources[] = {Resource::kRequests, Resource::kBytes, Resource::kWorkNs};
constexpr RejectReason kReasons[] = {RejectReason::kQueueRequests, RejectReason::kQueueBytes,
                                     RejectReason::kQueueWork};

int64_t PushbackMs(int64_t wait_ns) {
  return std::clamp(wait_ns / 1'000'000, kPushbackMsMin, kPushbackMsMax);
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options) : options_(std::move(options)) {
  WARPCALL_DCHECK(options_.lanes >= 1 && options_.spin_ns >= 0, options_.lanes, options_.spin_ns);
  WARPCALL_DCHECK(clock_ != nullptr);
  if (options_.staging == nullptr) return;
  options_.staging->OnReturn([this] { StagingReturned(); });
  if (options_.timer) timer_ = std::make_unique<Timer>("starved jobs", [this] { EndStarved(); });
}

Scheduler::~Scheduler() {
  if (options_.staging == nullptr) return;
  // Answers may still be on their way to slow readers, and return their staging after the scheduler
  // is gone. This waits for a call that is under way.
  options_.staging->OnReturn(nullptr);
}

void Scheduler::CheckInvariants() const {
  WARPCALL_CHECK(refusing_ || !closed_);
  WARPCALL_CHECK(!spinning_ || options_.spin_ns > 0, options_.spin_ns);
  if (options_.timer) return;
  waiting_.CheckInvariants();
  const Load& load = waiting_.load();
  WARPCALL_CHECK(load[0] <= limits_.requests_max, load[0], limits_.requests_max);
  WARPCALL_CHECK(load[1] <= limits_.bytes_max, load[1], limits_.bytes_max);
  WARPCALL_CHECK(load[2] <= limits_.work_ns_max || load[0] <= 1, load[2], limits_.work_ns_max);
  for (const LaneKind kind : {LaneKind::kOrdinary, LaneKind::kPreparing})
    for (const IdleLane* const lane : idle_[static_cast<size_t>(kind)])
      WARPCALL_CHECK(lane->kind == kind && lane->sleeps && !lane->spins, lane->kind, kind);
  for (const Running& running : running_)
    WARPCALL_CHECK(running.lane == LaneKind::kOrdinary || running.preparation->in_progress ||
                       running.preparation->done,
                   running.id);
}

int64_t Scheduler::WaitNs(int64_t work_ns) const {
  const int64_t now_ns = clock_();
  for (const Running& running : running_)
    if (running.lane == LaneKind::kOrdinary)
      work_ns += std::max<int64_t>(0, running.end_ns - now_ns);
  return work_ns / options_.lanes;
}

int64_t Scheduler::LimitOf(Resource resource) const {
  switch (resource) {
    case Resource::kRequests:
      return limits_.requests_max;
    case Resource::kBytes:
      return limits_.bytes_max;
    case Resource::kWorkNs:
      return limits_.work_ns_max;
  }
  return 0;
}

absl::Status Scheduler::Full(Resource resource, const Job& job, bool displaced) const {
  const auto r = static_cast<size_t>(resource);
  const int64_t own = LoadOf(job)[r];
  const int64_t held = waiting_.load()[r] + (displaced ? own : 0);
  const auto loads = [&](auto in_unit) {
    return displaced ? absl::StrCat(", ", in_unit(own), " of them this request's,")
                     : absl::StrCat(" and ", in_unit(own), " more to come,");
  };
  std::string what;
  switch (resource) {
    case Resource::kRequests:
      what = FullOfRequests(held);
      break;
    case Resource::kBytes:
      what = absl::StrCat(held, " bytes waiting", loads([](int64_t bytes) { return bytes; }),
                          " the limit is ", limits_.bytes_max, " bytes (queue_mib)");
      break;
    case Resource::kWorkNs:
      what = absl::StrCat(HumanTime(held), " of predicted work waiting", loads(HumanTime),
                          " the limit is ", HumanTime(limits_.work_ns_max), " (queue_seconds)");
      break;
  }
  const bool hopeless = resource != Resource::kWorkNs && own > LimitOf(resource);
  const int64_t work_ns = waiting_.load()[static_cast<size_t>(Resource::kWorkNs)];
  return RefuseFor(
      kReasons[r],
      absl::ResourceExhaustedError(absl::StrCat(
          displaced ? "the queue is full, and the request makes room for one of a principal that "
                      "holds less: "
                    : "the queue is full: ",
          what)),
      hopeless ? kNeverRetry : PushbackMs(WaitNs(work_ns)));
}

std::string Scheduler::FullOfRequests(int64_t held) const {
  return absl::StrCat(held, " requests waiting, the limit is ", limits_.requests_max,
                      " (queue_limit)");
}

absl::Status Scheduler::CheckRoomFor(uint64_t principal) const {
  if (!was_full_.load(std::memory_order_relaxed)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  const int64_t held = waiting_.load()[static_cast<size_t>(Resource::kRequests)];
  const bool full = held >= limits_.requests_max;
  was_full_.store(full, std::memory_order_relaxed);
  // A draining server returns UNAVAILABLE instead. Small jobs of principals that hold nothing may
  // not need a place (MayRunAtOnce).
  if (!full || refusing_ || !waiting_.HasJobsOf(principal) || waiting_.MakesRoomFor(principal))
    return absl::OkStatus();
  const int64_t work_ns = waiting_.load()[static_cast<size_t>(Resource::kWorkNs)];
  return RefuseFor(
      RejectReason::kQueueRequests,
      absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", FullOfRequests(held))),
      PushbackMs(WaitNs(work_ns)));
}

absl::Status Scheduler::CheckOpen(const Job& job) const {
  RETURN_IF_ERROR(CheckStillWanted(job, clock_()));
  if (!refusing_ || (job.continues && !closed_)) return absl::OkStatus();
  return RefuseFor(RejectReason::kDraining, absl::UnavailableError("the server is draining"),
                   kDrainPushbackMs);
}

// Errs on the side of admission: only measured work counts in full, and only waiting jobs that are
// sure to come first.
absl::Status Scheduler::CheckDeadline(const Job& job) const {
  if (job.key.deadline_ns == kNoDeadline || !job.prediction_measured) return absl::OkStatus();
  const int64_t left_ns = job.key.deadline_ns - clock_();
  if (job.predicted_ns > left_ns)
    return RefuseFor(RejectReason::kDeadlineUnmeetable,
                     absl::DeadlineExceededError(absl::StrCat(
                         "the deadline is ", HumanTime(left_ns), " away, and such requests take ",
                         HumanTime(job.predicted_ns), " on this device of late")),
                     kNeverRetry);
  const int64_t wait_ns = WaitNs(waiting_.empty() ? 0 : waiting_.WorkAheadOf(job));
  if (wait_ns + job.predicted_ns <= left_ns) return absl::OkStatus();
  return RefuseFor(
      RejectReason::kDeadlineUnmeetable,
      absl::ResourceExhaustedError(absl::StrCat(
          "the deadline is ", HumanTime(left_ns), " away, but ", HumanTime(wait_ns),
          " of predicted work come first and the request takes ", HumanTime(job.predicted_ns))),
      PushbackMs(wait_ns));
}

std::optional<Resource> Scheduler::MakeRoom(const Job& job, DisplacedJobs* displaced) {
  const Load load = LoadOf(job);
  const Load& held = waiting_.load();
  for (const Resource resource : kResources) {
    const auto r = static_cast<size_t>(resource);
    const auto fits = [&] { return load[r] <= LimitOf(resource) - held[r]; };
    const bool alone = resource == Resource::kWorkNs && waiting_.empty();
    while (!alone && !fits()) {
      std::unique_ptr<Job> other =
          load[r] > LimitOf(resource) ? nullptr : waiting_.TakeFromLargest(resource, job);
      if (other == nullptr) return resource;
      absl::Status full = Full(resource, *other, true);
      displaced->push_back({std::move(other), std::move(full)});
    }
  }
  return std::nullopt;
}

absl::Status Scheduler::Submit(std::unique_ptr<Job>* job) {
  WARPCALL_DCHECK(*job != nullptr && (*job)->trace != nullptr && (*job)->cancelled != nullptr);
  WARPCALL_DCHECK((*job)->staging.empty(), (*job)->staging.size());
  DisplacedJobs displaced;
  {
    absl::MutexLock lock(&mutex_);
    if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
    RETURN_IF_ERROR(CheckOpen(**job));
    RETURN_IF_ERROR(CheckStaging(**job));
    RETURN_IF_ERROR(CheckDeadline(**job));
    if (const std::optional<Resource> full = MakeRoom(**job, &displaced); full.has_value()) {
      for (Displaced& other : displaced) waiting_.Push(std::move(other.job));
      return Full(*full, **job, false);
    }
    (*job)->submitted_ns = clock_();
    (*job)->is_to_be_prepared = !(*job)->is_prepared() && !MayBeLong(**job);
    const bool is_to_be_prepared = (*job)->is_to_be_prepared;
    // A job that waits for the preparing lane keeps no other job from the device.
    if (is_to_be_prepared) (*job)->load = DeviceLoad();
    waiting_.Push(std::move(*job));
    if (waiting_.load()[0] >= limits_.requests_max) was_full_.store(true);
    work_waits_.store(true, std::memory_order_release);
    if (idle_since_ns_ != 0) {
      comes_back_soon_ = clock_() - idle_since_ns_ <= options_.spin_ns;
      idle_since_ns_ = 0;
    }
    // A lane that spins gets the first job; a lane that gets one wakes the next.
    if (is_to_be_prepared || !spinning_ || waiting_.load()[0] > 1) WakeOne();
    if (!watching_) StartTimer();
    watching_ = true;
  }
  End(std::move(displaced));
  return absl::OkStatus();
}

void Scheduler::End(DisplacedJobs displaced) {
  for (Displaced& other : displaced) EndJob(std::move(other.job), std::move(other.status));
}

absl::StatusOr<bool> Scheduler::MayRunAtOnce(const Job& job) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckOpen(job));
  return !waiting_.HasJobsOf(job.key.principal);
}

void Scheduler::Wake(LaneKind kind) {
  std::vector<IdleLane*>& idle = idle_[static_cast<size_t>(kind)];
  if (idle.empty()) return;
  IdleLane* const lane = idle.back();
  idle.pop_back();
  lane->sleeps = false;
  lane->woken.Signal();
}

void Scheduler::WakeOne() {
  Wake(LaneKind::kOrdinary);
  if (waiting_.to_be_prepared() > 0) Wake(LaneKind::kPreparing);
}

void Scheduler::WakeAll() {
  for (const LaneKind kind : {LaneKind::kOrdinary, LaneKind::kPreparing})
    while (!idle_[static_cast<size_t>(kind)].empty()) Wake(kind);
}

void Scheduler::WakeAllIfOver() {
  if (closed_ && waiting_.empty()) WakeAll();
}

// Jobs behind a removed one that lacked staging may need less of it.
void Scheduler::WakeAfterRemoval() {
  if (!waiting_.empty()) WakeOne();
  WakeAllIfOver();
}

std::unique_ptr<Job> Scheduler::Remove(const JobKey& key) {
  absl::MutexLock lock(&mutex_);
  if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
  std::unique_ptr<Job> job = waiting_.Remove(key);
  if (job != nullptr) WakeAfterRemoval();
  return job;
}

std::unique_ptr<Job> Scheduler::Next(LaneKind kind) {
  IdleLane self;
  self.kind = kind;
  absl::MutexLock lock(&mutex_);
  for (;;) {
    Found found = Look(&self);
    if (found.job != nullptr || found.over) return std::move(found.job);
    if (self.spins)
      Spin();
    else
      Sleep(&self);
  }
}

Scheduler::Found Scheduler::TryNext(IdleLane* lane) {
  absl::MutexLock lock(&mutex_);
  return Look(lane);
}

Scheduler::Found Scheduler::Look(IdleLane* lane) {
  WARPCALL_DCHECK(!lane->sleeps, lane->kind);
  if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
  if (std::exchange(lane->spins, false)) spinning_ = false;
  const bool first = !std::exchange(lane->has_looked, true);
  Found found = {TakeNext(lane->kind)};
  found.over = found.job == nullptr && closed_ && waiting_.empty();
  if (found.job != nullptr || found.over) return found;
  if (first && !spinning_ && options_.spin_ns > 0 && waiting_.empty() &&
      lane->kind == LaneKind::kOrdinary) {
    lane->spins = spinning_ = true;
  } else {
    lane->sleeps = true;
    idle_[static_cast<size_t>(lane->kind)].push_back(lane);
  }
  return found;
}

// A job that was taken for a short one counts as long once it runs long.
bool Scheduler::HoldsBackLong() const {
  const int64_t now_ns = clock_();
  const auto long_ones = std::count_if(running_.begin(), running_.end(), [&](const Running& job) {
    return job.lane == LaneKind::kOrdinary && (job.is_long || now_ns - job.start_ns > kLongNs);
  });
  return options_.lanes > 1 && long_ones >= options_.lanes - 1;
}

bool Scheduler::HoldsBack(Job& job, LaneKind kind) const {
  if (kind != LaneOf(job)) return true;
  WARPCALL_CHECK(kind == LaneKind::kOrdinary || job.preparation != nullptr, job.key.id);
  const bool waits_for_another = kind == LaneKind::kPreparing ? job.preparation->in_progress
                                                              : MayBeLong(job) && HoldsBackLong();
  if (waits_for_another) job.starved_since_ns = 0;
  return waits_for_another;
}

std::unique_ptr<Job> Scheduler::TakeNext(LaneKind kind) {
  const auto may_run = [this](Job& next) {
    if (TakeStaging(&next)) return true;
    if (next.starved_since_ns == 0) next.starved_since_ns = clock_();
    return false;
  };
  const auto held_back = [this, kind](Job& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return HoldsBack(next, kind);
  };
  std::unique_ptr<Job> job = waiting_.Pop(may_run, held_back);
  WARPCALL_DCHECK(job == nullptr || options_.staging == nullptr ||
                      job->staging.size() == StagingSizes(*job).size(),
                  job->staging.size());
  work_waits_.store(!waiting_.empty(), std::memory_order_relaxed);
  if (job == nullptr) return nullptr;
  const int64_t now_ns = clock_();
  running_.push_back({job->key.id, job->key.principal, job->row, now_ns, now_ns + job->predicted_ns,
                      MayBeLong(*job), kind, job->preparation});
  if (kind == LaneKind::kPreparing) {
    WARPCALL_DCHECK(!job->preparation->in_progress, job->key.id);
    job->preparation->in_progress = true;
  }
  if (!waiting_.empty()) WakeOne();
  WakeAllIfOver();
  return job;
}

bool Scheduler::TakeStaging(Job* job) const {
  WARPCALL_DCHECK(job->staging.empty(), job->key.id, job->staging.size());
  if (options_.staging == nullptr) return true;
  absl::optional<StagingBuffers> staging =
      options_.staging->TryAllocate(StagingSizes(*job), job->key.principal);
  if (!staging.has_value()) return false;
  job->staging = *std::move(staging);
  return true;
}

absl::Status Scheduler::CheckStaging(const Job& job) const {
  if (options_.staging == nullptr) return absl::OkStatus();
  const size_t wanted = StagingPool::BytesFor(StagingSizes(job));
  const size_t total = options_.staging->total_bytes();
  if (wanted <= total) return absl::OkStatus();
  return RefuseFor(
      RejectReason::kStagingBytes,
      absl::ResourceExhaustedError(absl::StrCat(
          "the request needs ", wanted, " bytes of staging memory for inputs and outputs; the ",
          "limit is ", total, " bytes (staging_mib)")),
      kNeverRetry);
}

void Scheduler::StartTimer() {
  if (timer_ != nullptr) timer_->Start(absl::Nanoseconds(kStarvedCheckPeriodNs));
}

void Scheduler::EndStarved() {
  WARPCALL_DCHECK(options_.staging != nullptr);
  DisplacedJobs starved;
  {
    absl::MutexLock lock(&mutex_);
    if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
    starved = TakeStarved();
    watching_ = !waiting_.empty();
    if (watching_) StartTimer();
    // Running jobs may have turned out long since the lanes looked. Long work is then held back,
    // and short work passes long work that lacks staging.
    if (watching_ && HoldsBackLong()) WakeOne();
  }
  End(std::move(starved));
}

bool Scheduler::watches() const {
  absl::MutexLock lock(&mutex_);
  return watching_;
}

Scheduler::DisplacedJobs Scheduler::TakeStarved() {
  const auto held_back = [this](Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return HoldsBack(job, LaneOf(job));
  };
  const auto fits = [this](const Job& job) {
    return options_.staging->HasRoom(StagingSizes(job), job.key.principal);
  };
  DisplacedJobs starved;
  for (std::unique_ptr<Job>& job : waiting_.TakeStarved(clock_(), kStarvedNsMax, held_back, fits)) {
    absl::Status status =
        RefuseFor(RejectReason::kStagingBytes,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "staging memory has no room for ", job->input_bytes + job->output_bytes,
                      " bytes more of this principal; ", options_.staging->total_bytes(),
                      " bytes (staging_mib) are shared by requests and by responses not yet read")),
                  kStagingPushbackMs);
    starved.push_back({std::move(job), std::move(status)});
  }
  if (!starved.empty()) WakeAfterRemoval();
  return starved;
}

void Scheduler::StagingReturned() {
  absl::MutexLock lock(&mutex_);
  if (!waiting_.empty()) WakeOne();
}

void Scheduler::Spin() {
  idle_since_ns_ = clock_();
  const int64_t give_up_ns =
      idle_since_ns_ + (comes_back_soon_ ? options_.spin_ns : options_.spin_ns / kShortSpins);
  mutex_.Unlock();
  while (!work_waits_.load(std::memory_order_acquire) && clock_() < give_up_ns) {
  }
  mutex_.Lock();
}

// Sleeps until woken.
void Scheduler::Sleep(IdleLane* lane) {
  while (lane->sleeps) lane->woken.Wait(&mutex_);
}

void Scheduler::Finished(uint64_t id, bool is_prepared) {
  absl::MutexLock lock(&mutex_);
  if (WARPCALL_DCHECK_IS_ON) CheckInvariants();
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [id](const Running& running) { return running.id == id; });
  if (found == running_.end()) return;
  waiting_.Correct(found->principal, clock_() - found->end_ns);
  const std::shared_ptr<Preparation> preparation = std::move(found->preparation);
  const LaneKind lane = found->lane;
  running_.erase(found);
  if (preparation == nullptr || preparation->done.load()) return;
  if (lane == LaneKind::kPreparing) preparation->in_progress = false;
  // Other jobs may wait for the same preparation; if it failed, the next of them tries.
  preparation->done.store(is_prepared);
  if (!waiting_.empty()) WakeOne();
}

std::vector<Scheduler::Running> Scheduler::RunningJobs() const {
  absl::MutexLock lock(&mutex_);
  return running_;
}

void Scheduler::BeginDrain() {
  absl::MutexLock lock(&mutex_);
  refusing_ = true;
}

void Scheduler::Close() {
  absl::MutexLock lock(&mutex_);
  refusing_ = closed_ = true;
  WakeAll();
}

std::vector<std::unique_ptr<Job>> Scheduler::CloseAndTakeAll() {
  Close();
  absl::MutexLock lock(&mutex_);
  std::vector<std::unique_ptr<Job>> jobs;
  while (std::unique_ptr<Job> job = waiting_.Pop([](Job&) { return true; }))
    jobs.push_back(std::move(job));
  return jobs;
}

QueueSnapshot Scheduler::Snapshot() const {
  absl::MutexLock lock(&mutex_);
  QueueSnapshot snapshot;
  if (waiting_.empty()) return snapshot;
  snapshot.depth = waiting_.load()[static_cast<size_t>(Resource::kRequests)];
  snapshot.bytes = waiting_.load()[static_cast<size_t>(Resource::kBytes)];
  snapshot.work_ns = waiting_.load()[static_cast<size_t>(Resource::kWorkNs)];
  snapshot.oldest_age_seconds = static_cast<double>(clock_() - waiting_.OldestSubmittedNs()) / 1e9;
  return snapshot;
}

}  // namespace warpcall
