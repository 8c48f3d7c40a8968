#include "kernels/expression/cuda_plan.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/compiler.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/expression/layout.h"
#include "kernels/expression/parser.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::expression {

absl::StatusOr<CudaLaunch> CompileLaunch(const CudaProblem& problem, const PlanContext& context) {
  if (context.libraries == nullptr)
    return absl::UnimplementedError("there is no device to compile for");
  CudaKernel generated = CudaKernelFor(problem);
  CudaLaunch launch = {.kernel = nullptr,
                       .grid = cuda::GridOf(generated.shape.blocks, generated.shape.block_threads)};
  ASSIGN_OR_RETURN(launch.kernel,
                   context.libraries->compiler().Get({std::move(generated.source), kCudaKernelName},
                                                     context.stop));
  return launch;
}

absl::Status Enqueue(const CudaLaunch& launch, absl::Span<const void* const> inputs, void* output,
                     const LaunchContext& context) {
  WARPCALL_CHECK(inputs.size() <= kInputsMax, inputs.size());
  const void* operands[kInputsMax + 1];
  void* addresses[kInputsMax + 1];
  size_t count = 0;
  const auto pass = [&](const void* operand) {
    operands[count] = operand;
    addresses[count] = &operands[count];
    ++count;
  };
  for (const void* const input : inputs) pass(input);
  pass(output);
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.grid.blocks;
  config.blockDim = launch.grid.threads;
  config.stream = cuda::StreamOf(context);
  return cuda::ToStatus(cudaLaunchKernelExC(&config, launch.kernel->kernel(), addresses),
                        "launching a compiled kernel");
}

cuda::LaunchedKernel LaunchedBy(const CudaLaunch& launch, int gpu_kernels) {
  // The runtime takes a cudaKernel_t wherever it takes a function.
  cuda::LaunchedKernel launched(reinterpret_cast<void (*)()>(launch.kernel->kernel()), launch.grid,
                                gpu_kernels);
  launched.code = {launch.kernel->entry(), launch.kernel->image()};
  launched.sources = {{"generated.cu", "cuda", launch.kernel->source()}};
  return launched;
}

absl::StatusOr<PlanPtr> PlanCompiled(const CudaTask& task, const PlanContext& context) {
  const Layout layout = LayoutOf(task.graph, task.inputs);
  WARPCALL_DCHECK(layout.rows > 0 && layout.columns > 0, layout.rows, layout.columns);
  ASSIGN_OR_RETURN(CudaLaunch launch, CompileLaunch({.graph = task.graph,
                                                     .layout = layout,
                                                     .data_type = task.inputs[0].data_type,
                                                     .seed = task.seed,
                                                     .arithmetic = task.arithmetic},
                                                    context));
  cuda::LaunchedKernel launched = LaunchedBy(launch, 1);
  if (!task.text.empty())
    launched.sources.push_back({"expression", "expression", absl::StrCat(task.text, "\n")});
  return cuda::NewKernelPlan({.may_be_replayed = true, .is_compiled = true}, launched, context,
                             [launch](const Operands& operands, const LaunchContext& where) {
                               return Enqueue(launch, operands.inputs, operands.outputs[0], where);
                             });
}

}  // namespace warpcall::expression
