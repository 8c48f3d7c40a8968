// Compiles a graph and plans the launch of its kernel, for all implementations of family
// `compiled`.
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

// Returns the kernel whose shape a plan reports; the plan launches `gpu_kernels` in all.
cuda::LaunchedKernel LaunchedBy(const CudaLaunch& launch, int gpu_kernels);

// As CompileLaunch. REQUIRES: the output has elements.
absl::StatusOr<PlanPtr> PlanCompiled(const CudaTask& task, const PlanContext& context);

}  // namespace warpcall::expression
