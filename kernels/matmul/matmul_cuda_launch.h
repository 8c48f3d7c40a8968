// Leads the GPU's tiled implementations from a tiling to their kernels. For CUDA files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/matmul_cuda_split.cuh"
#include "kernels/matmul/matmul_cuda_tiling.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::matmul {

using TiledKernel = void (*)(Arguments);

inline cuda::Grid GridOf(const Tiling& tiling) {
  return {.blocks = dim3(static_cast<uint32_t>(tiling.blocks)),
          .threads = dim3(tiling.tile.threads()),
          .shared_bytes = tiling.shared_bytes};
}

inline Arguments ArgumentsOf(const Tiling& tiling, const Operands& operands,
                             const LaunchContext& context) {
  WARPCALL_DCHECK(operands.inputs.size() >= 2, operands.inputs.size());
  WARPCALL_DCHECK(tiling.choice.splits == 1 || context.workspace != nullptr, tiling.choice.splits);
  Arguments arguments = tiling.arrangement.arguments;
  arguments.a = operands.inputs[0];
  arguments.b = operands.inputs[1];
  arguments.c = operands.outputs[0];
  arguments.partial = static_cast<float*>(context.workspace);
  return arguments;
}

// Enqueues `kernel`, which writes either c or, with splits, what SumSplits then makes c of.
template <typename T>
absl::Status LaunchTiles(TiledKernel kernel, const Tiling& tiling, const Operands& operands,
                         const LaunchContext& context) {
  const Arguments arguments = ArgumentsOf(tiling, operands, context);
  RETURN_IF_ERROR(cuda::Launch(kernel, GridOf(tiling), context, arguments));
  if (tiling.choice.splits == 1) return absl::OkStatus();
  const int64_t count = arguments.m * arguments.n * arguments.batches;
  const int64_t blocks = CeilDivide(count, kSumSplitsThreads);
  if (blocks > cuda::kGridMax)
    return absl::InternalError("sums were cut although the outputs alone fill the device");
  const cuda::Grid grid{.blocks = dim3(static_cast<uint32_t>(blocks)),
                        .threads = dim3(kSumSplitsThreads)};
  return cuda::Launch(SumSplits<T>, grid, context, static_cast<const float*>(arguments.partial),
                      arguments.splits, count, static_cast<T*>(arguments.c));
}

// A plan that launches these kernels; `swapped` operands exchange a and b.
template <typename T>
PlanPtr NewTiledPlan(TiledKernel kernel, const Tiling& tiling, const PlanContext& context,
                     bool swapped = false) {
  const Plan::Traits traits = {
      .workspace_bytes = PartialBytes(SizeOf(tiling.arrangement.arguments), tiling.choice),
      .variant = tiling.variant,
      .may_be_replayed = true};
  const cuda::LaunchedKernel launched(kernel, GridOf(tiling), tiling.choice.splits > 1 ? 2 : 1);
  return cuda::NewKernelPlan(
      traits, launched, context,
      [kernel, tiling, swapped](const Operands& operands, const LaunchContext& launch) {
        Operands in_order = operands;
        if (swapped) std::swap(in_order.inputs[0], in_order.inputs[1]);
        return LaunchTiles<T>(kernel, tiling, in_order, launch);
      });
}

}  // namespace warpcall::matmul
