// Compiles a candidate's code, and runs it on a device.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/compiled/foreign.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/plan.h"
#include "server/runtime/conditions.h"
#include "server/runtime/device.h"

namespace warpcall::judge {

// Returns a CompileError (kernels/compiled/program.h) for a source that the compiler refuses;
// DEADLINE_EXCEEDED, with how long the compiler took, for one that is not compiled by the deadline;
// UNIMPLEMENTED where there is no compiler, or none for the target.
using CompileCode = std::function<absl::StatusOr<compiled::CudaCode>(
    const compiled::ForeignSource& source, int64_t deadline_ns)>;

// Loads the code once more, and returns a plan whose launches are these; its workspace is the
// scratch memory, which may have to be zero. INVALID_ARGUMENT where the parameters are not the
// code's, RESOURCE_EXHAUSTED where it takes more memory than a launch may.
using LoadCode = std::function<absl::StatusOr<PlanPtr>(
    const compiled::CudaCode& code, const manifest::KernelLaunches& launches, bool scratch_zero)>;

// The device that candidates run on, open.
struct RunSite {
  Device* device = nullptr;
  LoadCode load;
  ConditionReader* conditions = nullptr;  // null: not known
};

}  // namespace warpcall::judge
