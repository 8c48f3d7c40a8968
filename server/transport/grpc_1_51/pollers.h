// How many of gRPC's threads look for events: few while requests are small.
//
// gRPC 1.51 has half as many threads for callbacks as there are cores, 2 to 16, and calls the one
// that has slept longest for each event, three times a request. With eight of them every one has
// slept for so long that its core is idle, which takes longer to call than the request itself.
// Requests of large tensors want them all: reading one keeps a thread busy for a millisecond.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"

namespace warpcall {

// gRPC has no setting for it, so the others are kept in callbacks of calls that end at once.
// Thread-safe.
class Pollers {
 public:
  // Threads for small requests: with three and more their cores go idle between two events.
  static constexpr int kFew = 2;
  // A request of so many bytes, answer included, keeps a thread busy for 100 us.
  static constexpr int64_t kLargeBytes = 256 << 10;
  // Since the last large request, or the beginning, until others are for few threads.
  static constexpr int64_t kCalmNs = 100'000'000;

  // With `few` threads for small requests; 0: always all of them.
  Pollers(int few, Clock clock);
  // Lets all threads go, and waits until they have. REQUIRES: their server is still there.
  ~Pollers();
  Pollers(const Pollers&) = delete;
  Pollers& operator=(const Pollers&) = delete;

  // A server with callbacks has been started. Counts gRPC's threads, for at most a second. With
  // another gRPC than 1.51, and under ThreadSanitizer, which cannot see what orders its threads,
  // all of them go on polling.
  void Begin();

  // A request has come whose tensors, its answer's included, have so many bytes. Does not wait.
  void Observe(int64_t bytes);

  // Threads that do not poll now.
  int parked() const;

 private:
  struct Call;

  void Park();
  void LetGo();
  // In the callback of a call: keeps the thread.
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
