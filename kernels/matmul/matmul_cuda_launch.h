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

// The operand at `data`, or its copy at `copy`, which is enqueued here if there is to be one.
inline absl::StatusOr<const void*> Place(const PaddedRows& turned, const void* data, void* copy,
                                         const LaunchContext& context) {
  if (turned.rows == 0) return data;
  RETURN_IF_ERROR(EnqueueTurn(turned, /*matrices=*/1, {data, copy}, context));
  return copy;
}

// Enqueues the copies that the kernel is to read.
inline absl::StatusOr<Arguments> PrepareTiles(const Tiling& tiling, const Operands& operands,
                                              const LaunchContext& context) {
  WARPCALL_DCHECK(operands.inputs.size() >= 2, operands.inputs.size());
  WARPCALL_DCHECK(tiling.workspace_bytes() == 0 || context.workspace != nullptr,
                  tiling.workspace_bytes());
  char* const workspace = static_cast<char*>(context.workspace);
  Arguments arguments = tiling.arrangement.arguments;
  ASSIGN_OR_RETURN(arguments.a, Place(tiling.a_turned, operands.inputs[0], workspace, context));
  ASSIGN_OR_RETURN(arguments.b, Place(tiling.b_turned, operands.inputs[1],
                                      workspace + tiling.a_turned.bytes(), context));
  arguments.c = operands.outputs[0];
  // A tiling has partial sums or shared tiles, never both.
  arguments.partial = reinterpret_cast<float*>(workspace + tiling.copies_bytes());
  arguments.left = workspace + tiling.copies_bytes();
  RETURN_IF_ERROR(LowerFlags(arguments.left, tiling.left_flag_bytes(), context));
  return arguments;
}

// Enqueues `kernel`, which writes either c or, with splits, what SumSplits then makes c of.
template <typename T>
absl::Status LaunchTiles(TiledKernel kernel, const Tiling& tiling, const Operands& operands,
                         const LaunchContext& context) {
  ASSIGN_OR_RETURN(const Arguments arguments, PrepareTiles(tiling, operands, context));
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
  const Plan::Traits traits = {.workspace_bytes = tiling.workspace_bytes(),
                               .variant = tiling.variant,
                               .may_be_replayed = true};
  const cuda::LaunchedKernel launched(kernel, GridOf(tiling), tiling.gpu_kernels());
  return cuda::NewKernelPlan(
      traits, launched, context,
      [kernel, tiling, swapped](const Operands& operands, const LaunchContext& launch) {
        Operands in_order = operands;
        if (swapped) std::swap(in_order.inputs[0], in_order.inputs[1]);
        return LaunchTiles<T>(kernel, tiling, in_order, launch);
      });
}

}  // namespace warpcall::matmul
