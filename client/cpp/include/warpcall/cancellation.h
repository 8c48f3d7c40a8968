// Ends calls to the server from another thread.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace grpc {
class ClientContext;
class CompletionQueue;
}  // namespace grpc

namespace warpcall::client {

// Thread-safe; outlives the calls that it is given to.
class Cancellation {
 public:
  Cancellation() = default;
  // Cancelled with `parent`, which may be null and outlives it. `wanted` is asked every 50 ms by
  // each thread that waits for the answer to a message, or pauses before it sends one again; false
  // is as Cancel. For callers to whom nothing else can speak while they wait.
  explicit Cancellation(Cancellation* parent, std::function<bool()> wanted = nullptr);
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // Calls under way end with CANCELLED unless they have just ended otherwise, and later ones at
  // once.
  void Cancel();
  // Returns when cancelled, or after `timeout`.
  void WaitFor(absl::Duration timeout);
  // Waits, with `mutex` held, for `condition`: false when `deadline` came first, or when cancelled,
  // which it notices within 50 ms. `cancellation` may be null.
  static bool Await(Cancellation* cancellation, absl::Mutex* mutex,
                    const absl::Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  friend class Channel;
  friend class StreamLoop;
  void Add(grpc::ClientContext* call);
  void Remove(grpc::ClientContext* call);
  // The queue's own Next, for the event of a call.
  bool Next(grpc::CompletionQueue* queue, void** tag, bool* ok);

  // Asks: some `wanted`, this object's or a parent's, has to be polled. IsWanted: none is false.
  bool Asks() const { return wanted_ != nullptr || (parent_ != nullptr && parent_->Asks()); }
  bool IsWanted() const;
  bool IsCancelled();

  Cancellation* const parent_ = nullptr;
  const std::function<bool()> wanted_;
  absl::Mutex mutex_;  // a parent's before its children's
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<Cancellation*> children_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::client
