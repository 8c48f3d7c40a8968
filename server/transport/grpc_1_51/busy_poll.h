// Threads that wait for the network look for it awake for a while before they sleep.
//
// A core that has nothing to do takes tens of microseconds to run the thread that an event wakes
// (an idle virtual core has to be called by the hypervisor): more than the whole way of a small
// request through the server. gRPC 1.51 has no setting for it, but it waits by epoll_wait, and a
// program's own function of that name comes before the C library's. It also cuts the waits for
// which the end of the process would have to wait.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace warpcall {

// Makes threads that wait in epoll_wait poll for `duration` after an event before they sleep. Only
// one of gRPC's threads polls at a time. Zero, the initial value: none polls.
void SetBusyPoll(absl::Duration duration);

// Returns the duration that pays off on a machine with `cpus` CPUs for this process: 100 us, or
// zero below 8 CPUs, where other threads need the CPUs more.
absl::Duration BusyPollFor(int cpus);

// How often epoll_wait of this process was called: 0 where gRPC does not come by here, as under
// ThreadSanitizer, which needs its own function of that name.
int64_t EpollWaits();

}  // namespace warpcall
