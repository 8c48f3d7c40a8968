// A peer that speaks just enough HTTP/2 for gRPC to send a call, grants it all the flow control
// there is, and then never reads again. To a client it looks like a server that hangs in the middle
// of a large request.
#pragma once

#include <string>
#include <thread>

#include "absl/time/time.h"

namespace warpcall::testing {

class StalledPeer {
 public:
  // Greets a client `greeting_delay` after it connected, as a server far away does.
  explicit StalledPeer(absl::Duration greeting_delay = absl::ZeroDuration());
  ~StalledPeer();

  const std::string& address() const { return address_; }

 private:
  int listener_ = -1;
  int connection_ = -1;
  std::string address_;
  std::thread thread_;
};

}  // namespace warpcall::testing
