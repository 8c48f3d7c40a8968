// What compiles, loads and launches a candidate's code.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/compiled/foreign.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/plan.h"

namespace warpcall::judge {

struct Toolchain {
  // A CompileError (kernels/compiled/program.h) for a source that the compiler refuses or that is
  // not compiled by the deadline; UNIMPLEMENTED where there is no compiler, or none for the target.
  std::function<absl::StatusOr<compiled::CudaCode>(const compiled::ForeignSource& source,
                                                   int64_t deadline_ns)>
      compile;
  // Loads the code once more, and returns a plan whose launches are these; its workspace is the
  // scratch memory, which may have to be zero. INVALID_ARGUMENT where the parameters are not the
  // code's, RESOURCE_EXHAUSTED where it takes more memory than a launch may. Null: the device runs
  // no candidates.
  std::function<absl::StatusOr<PlanPtr>(
      const compiled::CudaCode& code, const manifest::KernelLaunches& launches, bool scratch_zero)>
      load;
};

}  // namespace warpcall::judge
