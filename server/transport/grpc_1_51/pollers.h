// Limits how many of gRPC's threads poll for events: few while requests are small.
//
// gRPC 1.51 has half as many callback threads as there are cores, 2 to 16. For each event, three
// times a request, it wakes the thread that has slept longest. With eight threads that thread's
// core is idle by then, and waking it takes longer than the request itself. Requests with large
// tensors need all threads: reading one tensor keeps a thread busy for a millisecond.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"

namespace warpcall {

// gRPC has no setting for this number, so the other threads are parked: Pollers makes calls that
// end at once, and blocks in their callbacks. Thread-safe.
class Pollers {
 public:
  // Threads for small requests; with three or more, their cores go idle between two events.
  static constexpr int kFew = 2;
  // A request of this size, answer included, keeps a thread busy for 100 us.
  static constexpr int64_t kLargeBytes = 256 << 10;
  // Time after the last large request, or the start, before the other threads are parked.
  static constexpr int64_t kCalmNs = 100'000'000;

  // `few` threads poll while requests are small; 0: always all of them.
  Pollers(int few, Clock clock);
  // Releases all parked threads and waits until they have left. REQUIRES: their server still
  // exists.
  ~Pollers();
  Pollers(const Pollers&) = delete;
  Pollers& operator=(const Pollers&) = delete;

  // Counts gRPC's threads, for at most a second. Call it once a server with callbacks has started.
  // With a gRPC other than 1.51, and under ThreadSanitizer, which cannot see what orders gRPC's
  // threads, all of them go on polling.
  void Begin();

  // Records a request whose tensors, those of its answer included, have `bytes` bytes. Does not
  // wait.
  void Observe(int64_t bytes);

  // Returns the number of parked threads, which do not poll.
  int parked() const;

 private:
  struct Call;

  void Park();
  void LetGo();
  // Blocks the thread of a call's callback until the threads of `round` are released.
  void Stay(int64_t round);

  const int few_;
  const Clock clock_;
  grpc::GenericStub nowhere_;
  std::atomic<int> spare_{0};  // threads that small requests do without
  std::atomic<int64_t> last_large_ns_;
  std::atomic<bool> has_parked_{false};
  mutable absl::Mutex mutex_;
  absl::CondVar let_go_;
  absl::CondVar gone_;
  // Number of the latest set of threads parked together.
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // not over yet
  int parked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace warpcall
