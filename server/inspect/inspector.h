// Runs Benchmark, Profile and Describe, one at a time, each in a process of its own. The process's
// memory is gone with it, it can be ended at any moment, and neither a crash nor a profiler's hold
// on a process reaches the server.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/device_properties.h"
#include "proto/common/steady_wait.h"
#include "server/engine/clock.h"
#include "server/engine/metrics_sink.h"
#include "server/process/child.h"

namespace warpcall::inspect {

// A Benchmark, Profile or Describe to run.
struct Inquiry {
  Inspection kind = Inspection::kBenchmark;
  std::string device;
  const DeviceProperties* properties = nullptr;  // of the device; null: not needed
  std::string request;                           // for the child
  std::string traceparent;                       // may be empty
  bool in_parts = false;                         // the child answers as it goes
  // By when the child ends itself, with or without its answer; by the inspector's clock. `next`
  // sets it if the caller has a deadline that the task has not, and RunChild lowers it to the
  // task's.
  int64_t deadline_ns = kNoDeadline;
  // The server's limit of the task's time, if that sets the deadline; 0: the caller does. RunChild
  // sets it.
  int64_t limit_ns = 0;
};

struct Task {
  uint64_t principal = 0;  // its owner; 0: the server itself, which no limit keeps out
  bool is_push = false;    // pushes have places of their own
  int waiting_max = std::numeric_limits<int>::max();  // of its principal, if that is less than half
  int64_t bytes = 0;                                  // size of the request message
  int64_t not_before_ns = 0;                          // later tasks go first until then
  int64_t deadline_ns = kNoDeadline;
  // The longest time that it may run, from when it leaves the queue, if less than task_ns_max.
  int64_t ns_max = std::numeric_limits<int64_t>::max();
  // Set by the owner that no longer wants the result; outlives the task.
  const std::atomic<bool>* cancelled = nullptr;
  // Called first when the task is accepted, with the number of tasks that go before it. Must be
  // quick. `queued` and `used` may be null.
  absl::AnyInvocable<void(int ahead)> queued;
  // Called now and then while the task runs, and at its end, with the CPU time that its process has
  // taken so far.
  absl::AnyInvocable<void(int64_t cpu_ns)> used;
  // Called on the inspector's thread with OK when the task's turn has come, and again with each
  // error that a child returns. Returns the next child's inquiry, or the status with which the task
  // ends, perhaps that error.
  absl::AnyInvocable<absl::StatusOr<Inquiry>(const absl::Status& before)> next;
  // Called on the inspector's thread with each part of an answer before the last. Null: answers
  // have one part.
  absl::AnyInvocable<void(std::string)> part = nullptr;
  // Called exactly once for an accepted task, as the last thing.
  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done;
};

inline constexpr int kPushesWaitingMax = 64;

// Principals take turns: the oldest task of the principal served longest ago runs next. The
// server's own task runs when it is the oldest, and ends when the server drains. Thread-safe.
class Inspector {
 public:
  struct Options {
    int waiting_max = 8;  // inspect_queue: of all tasks but pushes
    int64_t waiting_bytes_max = int64_t{1} << 30;
    int64_t task_ns_max = 600'000'000'000;  // inspect_seconds
    size_t answer_bytes_max = size_t{512} << 20;
    Clock clock = MonotonicNs;
    std::function<absl::StatusOr<std::unique_ptr<process::Child>>(const Inquiry&)> start = nullptr;
  };

  explicit Inspector(Options options);
  // Ends the running task; waiting tasks end with UNAVAILABLE.
  ~Inspector();

  // Accepts the task or leaves it and returns the reason: RESOURCE_EXHAUSTED with a pushback when
  // too many wait, or when its principal has half of the places; UNAVAILABLE after BeginDrain.
  absl::Status Submit(std::unique_ptr<Task>* task);
  // Looks at every task's `cancelled` again.
  void Wake();
  // Accepts no more tasks, and ends the server's own; finishes the others.
  void BeginDrain();
  // Refuses, and soon ends all running and waiting tasks with UNAVAILABLE. Returns the number of
  // calls among them.
  int64_t EndAll();

 private:
  absl::Status CheckRoom(const Task& task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Loop();
  std::unique_ptr<Task> Next();
  using Waiting = std::deque<std::unique_ptr<Task>>;
  // Waiting tasks run in the order of their turns: the number of the principal's tasks that arrived
  // before `end`, then the principal's place in served_.
  using Turn = std::pair<int64_t, int64_t>;
  Turn TurnOf(uint64_t principal, Waiting::const_iterator end) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The task to run next; waiting_.end(): none may start yet.
  Waiting::iterator FindNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordServed(uint64_t principal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Time until a task may start; zero: one may.
  absl::Duration UntilNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Perform(Task& task);
  int64_t NsMax(const Task& task) const { return std::min(options_.task_ns_max, task.ns_max); }
  // Returns the answer of a new child.
  absl::StatusOr<std::string> RunChild(Inquiry inquiry, Task& task, int64_t give_up_ns);
  absl::StatusOr<std::string> Await(const process::Child& child, Task& task, int64_t give_up_ns);
  // The error of a task whose owner has left or whose time is up; OK otherwise.
  absl::Status CheckStillWanted(const Task& task, int64_t give_up_ns) const;
  void DropUnwanted();

  const Options options_;
  const int wake_;  // an eventfd
  std::atomic<bool> stopping_{false};
  std::atomic<bool> refusing_{false};  // set under mutex_
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool runs_call_ ABSL_GUARDED_BY(mutex_) = false;       // not a task of the server's own
  Waiting waiting_ ABSL_GUARDED_BY(mutex_);              // in the order of arrival
  std::deque<uint64_t> served_ ABSL_GUARDED_BY(mutex_);  // principals, the last one served last
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall::inspect
