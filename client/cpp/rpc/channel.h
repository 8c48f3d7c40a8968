// The client's only view of gRPC: calls whose messages are bytes. Internal to the library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace grpc {
class ClientContext;
}

namespace warpcall::client {

// Part of a message to send. `owner` is held until the transport is done with `bytes`, possibly
// after the call has ended; a piece without an owner is copied when the call is made.
struct Piece {
  absl::Span<const char> bytes;
  std::shared_ptr<const void> owner;
};

// The most that one gRPC message can hold: its length is sent in 32 bits.
inline constexpr int64_t kMessageBytesMax = (int64_t{1} << 32) - 1;

struct Reply {
  absl::Status status;
  // The trailer `grpc-retry-pushback-ms`, when there was one.
  std::optional<int64_t> pushback_ms;
  // The response in order, in memory that `owner` holds.
  absl::InlinedVector<absl::Span<const char>, 8> fragments;
  std::shared_ptr<const void> owner;
};

// Ends calls from another thread. Thread-safe; outlives the calls that it is given to.
class Cancellation {
 public:
  // Calls under way end with CANCELLED unless they have just ended otherwise, and later ones at
  // once.
  void Cancel();
  // Returns when cancelled, or after `timeout`.
  void WaitFor(absl::Duration timeout);

 private:
  friend class Channel;
  void Add(grpc::ClientContext* call);
  void Remove(grpc::ClientContext* call);

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

// What a stream carries. The two methods are called from two threads, possibly at the same time;
// each in itself only one call after the other. One that does not return OK ends the call with its
// status.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // The next message to send. Empty: there is none, now or later.
  virtual absl::StatusOr<std::vector<Piece>> NextMessage() = 0;
  // A message that came, in pieces that are gone when this returns.
  virtual absl::Status HandleMessage(absl::Span<const absl::Span<const char>> message) = 0;
};

// One connection. Thread-safe.
class Channel {
 public:
  // `stall_timeout` as in ClientOptions.
  Channel(const std::string& address, absl::Duration stall_timeout);
  ~Channel();

  // Calls `method` ("/package.Service/Method") once and waits; the calling thread does the polling.
  // INVALID_ARGUMENT when the message is over kMessageBytesMax. `cancellation` may be null.
  Reply Unary(const char* method, absl::Span<const Piece> message, absl::Time deadline,
              Cancellation* cancellation = nullptr) const;

  // Calls a method with streams both ways and waits for its end, when `handler` has had every
  // message. Sending and receiving wait for each other in no way. The reply has no fragments.
  Reply Stream(const char* method, absl::Time deadline, StreamHandler* handler) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall::client
