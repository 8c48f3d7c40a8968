#include "server/inspect/inspector.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/status_macros.h"
#include "server/engine/refusal.h"
#include "server/engine/run_watch.h"
#include "server/process/answer.h"

namespace warpcall::inspect {
namespace {

// A task takes some seconds.
constexpr int64_t kPushbackMs = 2'000;
// How often waiting tasks are checked for passed deadlines.
constexpr int64_t kLookMs = 200;
constexpr int64_t kDeadlineSlackNs = 2'000'000;
// A child ends itself by the server's limit. On a busy machine its answer may come this much later.
constexpr int64_t kAnswerLateNsMax = 2'000'000'000;
// Overhead of a part beside its bytes: a child gone wild sends empty parts without end.
constexpr size_t kPartBytes = 256;
// Principals whose last turn is remembered. A principal that was forgotten counts as never served.
constexpr size_t kServedMax = 1024;

// The error that a caller gets for a channel's error.
absl::Status ToCallersError(const absl::Status& error) {
  if (absl::IsResourceExhausted(error))
    return WithRetryPushback(absl::ResourceExhaustedError(absl::StrCat(
                                 "the answer has ", error.message(), " (max_message_mib)")),
                             kNeverRetry);
  return absl::InternalError("the process that looked into it ended early");
}

}  // namespace

Inspector::Inspector(Options options)
    : options_(std::move(options)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

Inspector::~Inspector() {
  EndAll();
  thread_.join();
  close(wake_);
}

absl::Status Inspector::CheckRoom(const Task& task) const {
  if (task.principal == 0) return absl::OkStatus();
  int clients = 0;
  int theirs = 0;
  bool others = false;
  for (const std::unique_ptr<Task>& waiting : waiting_) {
    others = others || waiting->principal != 0;
    if (waiting->is_push != task.is_push) continue;
    clients += waiting->principal != 0;
    theirs += waiting->principal == task.principal;
  }
  const int most = task.is_push ? kPushesWaitingMax : options_.waiting_max;
  const int half = CeilDivide(most, 2);
  const int theirs_most = std::min(half, task.waiting_max);
  if (clients >= most || theirs >= theirs_most)
    return absl::ResourceExhaustedError(absl::StrCat(
        clients, task.is_push ? " pushes" : " Benchmark, Profile and Describe calls",
        " wait, which run one at a time, ", theirs, " of them of this principal; the limits are ",
        most, task.is_push ? " and " : " (inspect_queue) and ", theirs_most));
  if (others && waiting_bytes_ + task.bytes > options_.waiting_bytes_max)
    return absl::ResourceExhaustedError(
        absl::StrCat("with this call's ", task.bytes, " bytes, ", waiting_bytes_ + task.bytes,
                     " would wait to be profiled; the limit is ", options_.waiting_bytes_max));
  return absl::OkStatus();
}

absl::Status Inspector::Submit(std::unique_ptr<Task>* task) {
  absl::MutexLock lock(&mutex_);
  if (refusing_.load())
    return RefuseFor(RejectReason::kDraining, absl::UnavailableError("the server is draining"),
                     kDrainPushbackMs);
  if (absl::Status room = CheckRoom(**task); !room.ok())
    return RefuseFor(RejectReason::kInspectQueue, std::move(room), kPushbackMs);
  const Turn turn = TurnOf((*task)->principal, waiting_.end());
  int ahead = runs_ ? 1 : 0;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting)
    // The server's own tasks give way.
    ahead += (*waiting)->principal != 0 && TurnOf((*waiting)->principal, waiting) <= turn;
  if ((*task)->queued) (*task)->queued(ahead);
  waiting_bytes_ += (*task)->bytes;
  waiting_.push_back(std::move(*task));
  changed_.Signal();
  return absl::OkStatus();
}

void Inspector::Wake() {
  eventfd_write(wake_, 1);
  absl::MutexLock lock(&mutex_);
  changed_.Signal();
}

void Inspector::BeginDrain() {
  absl::MutexLock lock(&mutex_);
  refusing_.store(true);
}

int64_t Inspector::EndAll() {
  int64_t calls = 0;
  {
    absl::MutexLock lock(&mutex_);
    refusing_.store(true);
    calls = runs_call_ ? 1 : 0;
    for (const std::unique_ptr<Task>& task : waiting_) calls += task->principal != 0;
  }
  stopping_.store(true);
  Wake();
  return calls;
}

void Inspector::Loop() {
  while (std::unique_ptr<Task> task = Next()) {
    absl::StatusOr<std::string> answer = Perform(*task);
    // No process, descriptor or GPU memory is left: other programs have it, and will return it.
    if (absl::IsResourceExhausted(answer.status()) && !RetryPushbackMs(answer.status()))
      answer = WithRetryPushback(answer.status(), kPushbackMs);
    task->done(std::move(answer));
  }
}

absl::Duration Inspector::UntilNext() const {
  int64_t earliest_ns = std::numeric_limits<int64_t>::max();
  for (const std::unique_ptr<Task>& task : waiting_)
    earliest_ns = std::min(earliest_ns, task->not_before_ns);
  if (waiting_.empty()) return absl::InfiniteDuration();
  return std::max(absl::ZeroDuration(), absl::Nanoseconds(earliest_ns - options_.clock()));
}

Inspector::Turn Inspector::TurnOf(uint64_t principal, Waiting::const_iterator end) const {
  const auto before = std::count_if(
      waiting_.begin(), end, [&](const auto& waiting) { return waiting->principal == principal; });
  const auto served = std::find(served_.begin(), served_.end(), principal);
  return {before, served == served_.end() ? -1 : served - served_.begin()};
}

Inspector::Waiting::iterator Inspector::FindNext() {
  const int64_t now_ns = options_.clock();
  auto next = waiting_.end();
  for (auto task = waiting_.begin(); task != waiting_.end(); ++task) {
    const bool own = (*task)->principal == 0;
    if (!stopping_.load() && (*task)->not_before_ns > now_ns) continue;
    if (next == waiting_.end()) {
      next = task;
      if (own) break;  // the server's own came first
    } else if (!own && TurnOf((*task)->principal, task) < TurnOf((*next)->principal, next)) {
      next = task;
    }
  }
  return next;
}

void Inspector::RecordServed(uint64_t principal) {
  std::erase(served_, principal);
  served_.push_back(principal);
  if (served_.size() > kServedMax) served_.pop_front();
}

std::unique_ptr<Task> Inspector::Next() {
  absl::MutexLock lock(&mutex_);
  runs_ = runs_call_ = false;
  while (!stopping_.load() && UntilNext() > absl::ZeroDuration())
    changed_.WaitUntil(&mutex_, SteadyAfter(UntilNext()));
  const auto next = FindNext();
  if (next == waiting_.end()) return nullptr;
  std::unique_ptr<Task> task = std::move(*next);
  waiting_.erase(next);
  RecordServed(task->principal);
  waiting_bytes_ -= task->bytes;
  runs_ = true;
  runs_call_ = task->principal != 0;
  return task;
}

absl::Status Inspector::CheckStillWanted(const Task& task, int64_t give_up_ns) const {
  const int64_t now_ns = options_.clock();
  // gRPC cancels a call when its deadline passes, by its own clock.
  const bool expired = now_ns >= task.deadline_ns;
  const bool nearly = now_ns >= task.deadline_ns - kDeadlineSlackNs;
  if (expired || (nearly && task.cancelled->load()))
    return absl::DeadlineExceededError("the deadline passed before the call was done");
  if (task.cancelled->load()) return absl::CancelledError("the client went away");
  if (stopping_.load()) return DrainOverError();
  if (refusing_.load() && task.principal == 0)
    return absl::UnavailableError("the server is draining");
  if (now_ns >= give_up_ns)
    return WithRetryPushback(
        absl::ResourceExhaustedError(absl::StrCat(
            "the call took longer than the limit of ", static_cast<double>(NsMax(task)) / 1e9, " s",
            task.ns_max < options_.task_ns_max ? "" : " (inspect_seconds)", ": ask for less")),
        kNeverRetry);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Inspector::Perform(Task& task) {
  const int64_t give_up_ns = options_.clock() + NsMax(task);
  absl::StatusOr<std::string> answer("");
  do {
    Inquiry inquiry;
    ASSIGN_OR_RETURN(inquiry, task.next(answer.status()));
    task.deadline_ns = std::min(task.deadline_ns, inquiry.deadline_ns);
    RETURN_IF_ERROR(CheckStillWanted(task, give_up_ns));
    answer = RunChild(std::move(inquiry), task, give_up_ns);
  } while (!answer.ok());
  return answer;
}

absl::StatusOr<std::string> Inspector::RunChild(Inquiry inquiry, Task& task, int64_t give_up_ns) {
  inquiry.deadline_ns = std::min(task.deadline_ns, give_up_ns);
  inquiry.limit_ns = give_up_ns < task.deadline_ns ? NsMax(task) : 0;
  std::unique_ptr<process::Child> child;
  ASSIGN_OR_RETURN(child, options_.start(inquiry));
  if (const absl::Status sent = child->channel().Send("", inquiry.request); !sent.ok())
    return ToCallersError(sent);
  inquiry.request = std::string();  // may be large, and the child may take long
  absl::StatusOr<std::string> answer = Await(*child, task, give_up_ns + kAnswerLateNsMax);
  if (task.used) task.used(child->CpuNs());
  return answer;
}

absl::StatusOr<std::string> Inspector::Await(const process::Child& child, Task& task,
                                             int64_t give_up_ns) {
  pollfd watched[] = {{child.channel().socket(), POLLIN, 0}, {wake_, POLLIN, 0}};
  size_t bytes_left = options_.answer_bytes_max;
  for (;;) {
    RETURN_IF_ERROR(CheckStillWanted(task, give_up_ns));
    DropUnwanted();
    poll(watched, 2, static_cast<int>(kLookMs));
    if (watched[0].revents != 0) {
      absl::StatusOr<process::Answer> answer = process::ReceiveAnswer(child.channel(), bytes_left);
      if (!answer.ok()) return ToCallersError(answer.status());
      if (!answer->more || !answer->result.ok()) return std::move(answer->result);
      const size_t held_bytes = answer->result->size() + kPartBytes;
      if (held_bytes > bytes_left)
        return WithRetryPushback(absl::ResourceExhaustedError(absl::StrCat(
                                     "the answer's parts have more bytes than the limit of ",
                                     options_.answer_bytes_max, " (max_message_mib)")),
                                 kNeverRetry);
      bytes_left -= held_bytes;
      if (task.part != nullptr) task.part(*std::move(answer->result));
    }
    if (task.used) task.used(child.CpuNs());
    eventfd_t count;
    eventfd_read(wake_, &count);
  }
}

void Inspector::DropUnwanted() {
  std::vector<std::unique_ptr<Task>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    const auto kept = std::stable_partition(
        waiting_.begin(), waiting_.end(),
        [&](const auto& task) { return CheckStillWanted(*task, kNoDeadline).ok(); });
    std::move(kept, waiting_.end(), std::back_inserter(dropped));
    waiting_.erase(kept, waiting_.end());
    for (const std::unique_ptr<Task>& task : dropped) waiting_bytes_ -= task->bytes;
  }
  for (const std::unique_ptr<Task>& task : dropped)
    task->done(CheckStillWanted(*task, kNoDeadline));
}

}  // namespace warpcall::inspect
