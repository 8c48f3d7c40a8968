#include "server/system/housekeeper.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"
#include "proto/common/steady_wait.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

// Work that takes longer is told of: other timers were late.
constexpr absl::Duration kLongWork = absl::Milliseconds(250);

class Housekeeper {
 public:
  // Never destroyed: its thread ends with the process.
  static Housekeeper& OfProcess() {
    static Housekeeper& housekeeper = *new Housekeeper;
    return housekeeper;
  }

  // `once`: the timer is removed after its work.
  int Add(const char* name, std::function<void()> work, absl::Duration period, bool once) {
    absl::MutexLock lock(&mutex_);
    timers_[++last_id_] = {name, std::move(work), period, once};
    return last_id_;
  }

  void Start(int id, absl::Duration after) {
    absl::MutexLock lock(&mutex_);
    const auto timer = timers_.find(id);
    if (timer == timers_.end()) return;
    timer->second.due = std::min(timer->second.due, SteadyAfter(after));
    changed_.SignalAll();
  }

  void Remove(int id) {
    WARPCALL_CHECK(std::this_thread::get_id() != thread_.get_id(), id);
    absl::MutexLock lock(&mutex_);
    while (at_work_ == id) changed_.Wait(&mutex_);
    timers_.erase(id);
  }

 private:
  struct Entry {
    const char* name = "";
    std::function<void()> work;
    absl::Duration period = absl::InfiniteDuration();
    bool once = false;
    SteadyTime due = SteadyTime::max();
  };

  Housekeeper() : thread_([this] { Run(); }) {}

  void Run() {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      const auto next = std::min_element(
          timers_.begin(), timers_.end(),
          [](const auto& a, const auto& b) { return a.second.due < b.second.due; });
      if (next == timers_.end() || next->second.due == SteadyTime::max()) {
        changed_.Wait(&mutex_);
      } else if (std::chrono::steady_clock::now() < next->second.due) {
        changed_.WaitUntil(&mutex_, next->second.due);
      } else {
        Work(next->first, &next->second);
      }
    }
  }

  void Work(int id, Entry* timer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    at_work_ = id;
    timer->due = SteadyTime::max();
    const SteadyTime begin = std::chrono::steady_clock::now();
    mutex_.Unlock();
    timer->work();  // Remove waits for it
    mutex_.Lock();
    const absl::Duration took = -UntilSteady(begin);
    if (took > kLongWork)
      Log(LogLevel::kDebug, "a timer's work took long",
          {{"timer", timer->name}, {"seconds", absl::ToDoubleSeconds(took)}});
    timer->due = std::min(timer->due, SteadyAfter(timer->period));
    at_work_ = 0;
    if (timer->once) timers_.erase(id);
    changed_.SignalAll();
  }

  absl::Mutex mutex_;  // not held during work
  SteadyCondVar changed_;
  std::map<int, Entry> timers_ ABSL_GUARDED_BY(mutex_);
  int last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int at_work_ ABSL_GUARDED_BY(mutex_) = 0;  // the timer's id; 0: none
  std::thread thread_;                       // last: runs on all of the above
};

}  // namespace

Timer::Timer(const char* name, std::function<void()> work, absl::Duration period)
    : id_(Housekeeper::OfProcess().Add(name, std::move(work), period, false)) {}

void Timer::Start(absl::Duration after) { Housekeeper::OfProcess().Start(id_, after); }

void Timer::Stop() { Housekeeper::OfProcess().Remove(id_); }

void RunLater(const char* name, absl::Duration after, std::function<void()> work) {
  Housekeeper& housekeeper = Housekeeper::OfProcess();
  housekeeper.Start(housekeeper.Add(name, std::move(work), absl::InfiniteDuration(), true), after);
}

}  // namespace warpcall
