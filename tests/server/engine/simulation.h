// The whole engine on one thread, in made-up time: a seed draws the events of its clients, lanes,
// timers and devices, so that a failed run can be repeated.
//
// Other events happen wherever the engine holds no lock: between taking a job, copying its inputs
// in, running and ending it, between the steps of a graph, inside every callback, while staging
// comes back and between the checks for starving jobs. A lane sleeps until it is called.
// ThreadSanitizer covers interleavings at a finer grain.
#pragma once

#include <cstdint>
#include <string>

namespace warpcall::testing {

struct Outcome {
  std::string failure;  // empty: nothing was wrong
  std::string trace;    // a line for each event, when asked for
  int events = 0;       // drawn, and to the end of all that they began
  int64_t evictions = 0;
  int64_t replays = 0;  // of recordings
};

Outcome Simulate(uint64_t seed, bool trace);

}  // namespace warpcall::testing
