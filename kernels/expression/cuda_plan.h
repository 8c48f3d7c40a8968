// From a graph to a plan that launches what is compiled for it: what all rows of family `compiled`
// do.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/compiled/compiler.h"
#include "kernels/cuda/launch.h"
#include "kernels/expression/cuda_source.h"
#include "kernels/expression/cuda_task.h"
#include "kernels/op.h"
#include "kernels/plan.h"

namespace warpcall::expression {

// A kernel that was compiled, and how it is launched.
struct CudaLaunch {
  std::shared_ptr<const compiled::CompiledKernel> kernel;
  cuda::Grid grid;
};

// Waits for the compiler.
absl::StatusOr<CudaLaunch> CompileLaunch(const CudaProblem& problem, const PlanContext& context);

absl::Status Enqueue(const CudaLaunch& launch, absl::Span<const void* const> inputs, void* output,
                     const LaunchContext& context);

// What tells the shape of a plan that launches `gpu_kernels` of which this one counts.
cuda::LaunchedKernel LaunchedBy(const CudaLaunch& launch, int gpu_kernels);

// As CompileLaunch. REQUIRES: the output has elements.
absl::StatusOr<PlanPtr> PlanCompiled(const CudaTask& task, const PlanContext& context);

}  // namespace warpcall::expression
