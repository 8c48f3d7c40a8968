// The client's only view of gRPC: unary calls whose messages are bytes. Internal to the library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

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

// One connection. Thread-safe.
class Channel {
 public:
  // `stall_timeout` as in ClientOptions.
  Channel(const std::string& address, absl::Duration stall_timeout);
  ~Channel();

  // Calls `method` ("/package.Service/Method") once and waits; the calling thread does the polling.
  // INVALID_ARGUMENT when the message is over kMessageBytesMax.
  Reply Unary(const char* method, absl::Span<const Piece> message, absl::Time deadline) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall::client
