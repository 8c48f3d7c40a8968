// Ends calls whose answers nobody reads. gRPC keeps an answer, and with it staging memory, until
// its client has taken the last byte, for as long as the client likes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"

namespace warpcall {

// Thread-safe.
class SendWatch {
 public:
  // The answers of one call. Belongs to the call, and is gone before it is.
  class Sending {
   public:
    // `watch` may be null: then nobody watches.
    Sending(SendWatch* watch, grpc::CallbackServerContext* context)
        : watch_(watch), context_(context) {}
    ~Sending() { End(); }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

    // gRPC has got a message of so many bytes to send. REQUIRES: no other one is under way.
    void Begin(size_t bytes);
    // It was sent, or never will be.
    void End();

   private:
    friend class SendWatch;

    SendWatch* const watch_;
    grpc::CallbackServerContext* const context_;
    // Guarded by the watch's mutex.
    bool begun_ = false;
    int64_t allowed_ns_ = 0;
    int64_t since_ns_ = 0;  // when Check saw it first; 0: not yet
  };

  // A message of more bytes has as much time again for each so many.
  static constexpr int64_t kBytesPerPeriod = int64_t{64} << 20;

  // `period_ns`: for how long a small message may wait to be read.
  explicit SendWatch(int64_t period_ns) : period_ns_(period_ns) {
    WARPCALL_DCHECK(period_ns > 0, period_ns);
  }

  // For how long a message of so many bytes may. gRPC 1.51 does not say how much of a message it
  // has sent, so a slow client is told from one that reads nothing by the whole message's time.
  int64_t AllowedNs(size_t bytes) const;

  // Cancels each call whose message has had its time, by the clock that says `now_ns`; returns
  // their peers. To be called often, by one thread.
  std::vector<std::string> Check(int64_t now_ns);

 private:
  const int64_t period_ns_;
  absl::Mutex mutex_;
  absl::flat_hash_set<Sending*> sendings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
