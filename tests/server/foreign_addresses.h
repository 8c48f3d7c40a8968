// Addresses that no machine has.
#pragma once

#include "tests/temp_folder.h"

namespace warpcall::testing {

// True where this system lets processes listen at them all the same, as balancers of load do.
inline bool MayListenAtForeignAddresses() {
  return ReadFile("/proc/sys/net/ipv4/ip_nonlocal_bind") == "1\n";
}

}  // namespace warpcall::testing
