// Hardware counters of each kernel that runs, by CUPTI's range profiler.
#pragma once

#include <cuda.h>

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/runtime/cuda/cupti_api.h"
#include "server/runtime/device.h"

namespace warpcall::cupti {

// Kernels that one call of CountKernels can tell apart.
inline constexpr size_t kCountedKernelsMax = 1024;

// Calls `work` once, with every kernel that it launches into `context` a range of its own: CUPTI
// runs it as often as the counters need, with its memory restored in between, and waits for it, so
// that a kernel that waits for another one's never ends. Everything is undone on return.
//
// CUPTI only numbers the ranges; their names are those of the launches seen meanwhile, in order
// (kernels that several threads launch at the same moment may get each other's). A launch that is
// recorded into a graph, not run, or CUPTI's counting a graph's kernels one by one makes the two
// differ in number: INTERNAL, since a name may be wrong then.
//
// RESOURCE_EXHAUSTED for more kernels than kCountedKernelsMax. REQUIRES: `device` is the ordinal of
// the calling thread's CUDA device, and `context` is current.
struct CountedContext {
  int device;
  CUcontext context;
};
absl::StatusOr<std::vector<KernelCounters>> CountKernels(const Api& api,
                                                         const CountedContext& counted,
                                                         absl::FunctionRef<absl::Status()> work);

}  // namespace warpcall::cupti
