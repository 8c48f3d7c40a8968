#include "server/engine/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/engine/retry_pushback.h"

namespace warpcall {
namespace {

// Weight of the newest sample: the mean follows a change of load within some ten jobs.
constexpr double kServiceTimeWeight = 0.1;
constexpr int64_t kPushbackMsMin = 1;
constexpr int64_t kPushbackMsMax = 5'000;
// A draining server is usually replaced: long enough for its successor to be found.
constexpr int64_t kDrainPushbackMs = 1'000;

}  // namespace

Scheduler::Scheduler(QueueLimits limits, Clock clock) : limits_(limits), clock_(std::move(clock)) {}

int64_t Scheduler::EstimatedWaitMs() const {
  const double wait_ns = static_cast<double>(waiting_.size()) * service_ns_;
  return std::clamp(static_cast<int64_t>(wait_ns / 1e6), kPushbackMsMin, kPushbackMsMax);
}

absl::Status Scheduler::Admit(const Job& job) const {
  RETURN_IF_ERROR(CheckStillWanted(job, clock_()));
  if (closed_) {
    job.trace->reject_reason = RejectReason::kDraining;
    return WithRetryPushback(absl::UnavailableError("the server is draining"), kDrainPushbackMs);
  }
  if (static_cast<int64_t>(waiting_.size()) >= limits_.requests_max) {
    job.trace->reject_reason = RejectReason::kQueueRequests;
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", waiting_.size(),
                                                  " requests waiting, the limit is ",
                                                  limits_.requests_max, " (queue_limit)")),
        EstimatedWaitMs());
  }
  if (job.input_bytes > limits_.bytes_max - waiting_bytes_) {
    job.trace->reject_reason = RejectReason::kQueueBytes;
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat(
            "the queue is full: ", waiting_bytes_, " bytes waiting and ", job.input_bytes,
            " more to come, the limit is ", limits_.bytes_max, " bytes (queue_mib)")),
        job.input_bytes > limits_.bytes_max ? kNeverRetry : EstimatedWaitMs());
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Submit(std::unique_ptr<Job>* job) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Admit(**job));
  (*job)->submitted_ns = clock_();
  waiting_bytes_ += (*job)->input_bytes;
  const Key key((*job)->deadline_ns, (*job)->id);
  waiting_.emplace(key, std::move(*job));
  CallIdle();
  return absl::OkStatus();
}

void Scheduler::CallIdle() {
  if (idle_.empty()) return;
  Idle* const idle = idle_.back();
  idle_.pop_back();
  idle->is_called = true;
  idle->called.Signal();
}

std::unique_ptr<Job> Scheduler::Remove(int64_t deadline_ns, uint64_t id) {
  absl::MutexLock lock(&mutex_);
  const auto found = waiting_.find(Key(deadline_ns, id));
  if (found == waiting_.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(found->second);
  waiting_.erase(found);
  waiting_bytes_ -= job->input_bytes;
  return job;
}

std::unique_ptr<Job> Scheduler::Next() {
  absl::MutexLock lock(&mutex_);
  while (waiting_.empty()) {
    if (closed_) return nullptr;
    Idle self;
    idle_.push_back(&self);
    while (!self.is_called) self.called.Wait(&mutex_);
  }
  const auto first = waiting_.begin();
  std::unique_ptr<Job> job = std::move(first->second);
  waiting_.erase(first);
  waiting_bytes_ -= job->input_bytes;
  return job;
}

void Scheduler::NoteServiceTime(int64_t ns) {
  absl::MutexLock lock(&mutex_);
  service_ns_ += kServiceTimeWeight * (static_cast<double>(ns) - service_ns_);
}

void Scheduler::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  while (!idle_.empty()) CallIdle();
}

QueueSnapshot Scheduler::Snapshot() const {
  absl::MutexLock lock(&mutex_);
  QueueSnapshot snapshot;
  snapshot.depth = static_cast<int64_t>(waiting_.size());
  snapshot.bytes = waiting_bytes_;
  int64_t oldest_ns = kNoDeadline;
  for (const auto& [key, job] : waiting_) oldest_ns = std::min(oldest_ns, job->submitted_ns);
  if (!waiting_.empty())
    snapshot.oldest_age_seconds = static_cast<double>(clock_() - oldest_ns) / 1e9;
  return snapshot;
}

}  // namespace warpcall
