// Finds out if this system knows the name localhost: a bare root has no /etc/hosts.
#pragma once

#include <netdb.h>

namespace warpcall::testing {

inline bool KnowsLocalhost() {
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

}  // namespace warpcall::testing
