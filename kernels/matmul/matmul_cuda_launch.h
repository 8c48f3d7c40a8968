// How the tiled rows of the GPU come from a plan to their kernels. For CUDA files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/matmul_cuda_plan.h"
#include "kernels/matmul/matmul_cuda_split.cuh"

namespace warpcall::matmul {

using TiledKernel = void (*)(Arguments);

inline cuda::Grid GridOf(const Plan& plan) {
  return {.blocks = dim3(static_cast<uint32_t>(plan.blocks)),
          .threads = dim3(plan.tile.threads()),
          .shared_bytes = plan.shared_bytes};
}

// Enqueues `kernel`, which writes either c or, with splits, what SumSplits then makes c of.
template <typename T>
absl::Status LaunchPlan(TiledKernel kernel, const Plan& plan, const Operands& operands,
                        const LaunchContext& context) {
  Arguments arguments = plan.arrangement.arguments;
  arguments.a = operands.inputs[0];
  arguments.b = operands.inputs[1];
  arguments.c = operands.outputs[0];
  arguments.partial = static_cast<float*>(context.workspace);
  RETURN_IF_ERROR(cuda::Launch(kernel, GridOf(plan), context, arguments));
  if (plan.choice.splits == 1) return absl::OkStatus();
  const int64_t count = arguments.m * arguments.n * arguments.batches;
  const int64_t blocks = CeilDivide(count, kSumSplitsThreads);
  if (blocks > cuda::kGridMax)
    return absl::InternalError("sums were cut although the outputs alone fill the device");
  const cuda::Grid grid{.blocks = dim3(static_cast<uint32_t>(blocks)),
                        .threads = dim3(kSumSplitsThreads)};
  return cuda::Launch(SumSplits<T>, grid, context, static_cast<const float*>(arguments.partial),
                      arguments.splits, count, static_cast<T*>(arguments.c));
}

}  // namespace warpcall::matmul
