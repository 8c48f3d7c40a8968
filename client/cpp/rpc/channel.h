// The client's only view of gRPC: calls whose messages are bytes. Internal to the library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "warpcall/call.h"
#include "warpcall/client.h"

namespace warpcall::client {

// Part of a message to send. `owner` is held until the transport is done with `bytes`, possibly
// after the call has ended; a piece without an owner is copied when the call is made.
struct Piece {
  absl::Span<const char> bytes;
  std::shared_ptr<const void> owner;
};

struct Reply {
  absl::Status status;
  // The trailer `grpc-retry-pushback-ms`, when there was one.
  std::optional<int64_t> pushback_ms;
  // The response in order, in memory that `owner` holds.
  absl::InlinedVector<absl::Span<const char>, 8> fragments;
  std::shared_ptr<const void> owner;
};

// Source and sink of a stream's messages. The two methods are called from two threads, possibly at
// the same time; calls of one method never overlap. A status other than OK ends the call with that
// status.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // The next message to send. Empty: there is none, now or later.
  virtual absl::StatusOr<std::vector<Piece>> NextMessage() = 0;
  // A message that came, in pieces that are gone when this returns.
  virtual absl::Status HandleMessage(absl::Span<const absl::Span<const char>> message) = 0;
};

// Terms of a call of any kind, beside its message.
struct CallTerms {
  absl::Time deadline;
  Cancellation* cancellation = nullptr;  // or null
  // As in CallOptions.
  std::string traceparent = {};
};

// As in ClientOptions.
struct ChannelOptions {
  absl::Duration stall_timeout;
  std::function<void(const Attempt&)> observe = nullptr;
  std::function<void(int ahead)> queued = nullptr;
  Credentials credentials = {};
  std::string session = {};
};

// As gRPC takes it, whose longest is never.
int KeepaliveTimeoutMs(absl::Duration stall_timeout);

// One connection. Thread-safe.
class Channel {
 public:
  // `address` is one that ParseAddress (address.h) gave.
  Channel(const std::string& address, ChannelOptions options);
  ~Channel();

  // Calls `method` ("/package.Service/Method") once and waits; the calling thread does the polling.
  // INVALID_ARGUMENT when the message is over kMessageBytesMax.
  Reply Unary(const char* method, absl::Span<const Piece> message, const CallTerms& terms) const;

  // Calls a method with streams both ways and waits for its end, when `handler` has had every
  // message. Sending and receiving wait for each other in no way. The reply has no fragments.
  Reply Stream(const char* method, StreamHandler* handler, const CallTerms& terms) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall::client
