// Reads Push's events; transport is elsewhere. Internal to the library.
#pragma once

#include "absl/status/status.h"
#include "client/cpp/codec/codec.h"
#include "warpcall/inspect.h"

namespace warpcall::client {

// The events of one push, in order. For one thread.
class PushEvents {
 public:
  // `watch` outlives the object.
  explicit PushEvents(const PushWatch& watch) : watch_(watch) {}

  // Shows an event to the caller. INTERNAL for an event after the verdict, and for more than a push
  // can have.
  absl::Status Add(Fragments response);
  // Returns the verdict, or INTERNAL if the stream ended without one.
  absl::StatusOr<PushVerdict> TakeVerdict();

 private:
  const PushWatch& watch_;
  int events_ = 0;
  bool has_verdict_ = false;
  PushVerdict verdict_;
};

}  // namespace warpcall::client
