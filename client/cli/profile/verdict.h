// Verdict on a kernel: the bound of its speed, the reason, the distance from it, and advice.
#pragma once

#include <string>
#include <vector>

#include "client/cli/profile/figures.h"

namespace warpcall::cli {

enum class Bound {
  kUnknown,       // nothing ran, or too little is known of it
  kInconclusive,  // other work took too much of the threads' time: see IsInconclusive
  kMemory,        // bytes come and go about as fast as a copy's
  kCompute,       // the units that compute are about as busy as they can be
  kLatency,       // neither: they wait, for data or for each other
  kLaunch,        // starting the work takes about as long as the work
  kTransfer,      // bringing bytes to the device and back takes longer than the kernels
};
const char* BoundName(Bound bound);  // "memory", ...

struct Verdict {
  Bound bound = Bound::kUnknown;
  std::string reason;               // with its figures and, where there is one, the ceiling
  std::vector<std::string> advice;  // sentences, what promises most first
};

Verdict Judge(const Profiled& profiled, const Figures& figures);

}  // namespace warpcall::cli
