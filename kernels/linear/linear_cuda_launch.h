// Leads linear's tiled implementations from a tiling to their kernels. For CUDA files.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_width.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cuda_finish.cuh"
#include "kernels/linear/linear_cuda_sums.h"
#include "kernels/matmul/matmul_cuda_launch.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::linear {

template <typename T>
using TiledKernel = void (*)(matmul::Arguments, Finish<T>);

// x and weight with k adjacent in both, which strides do not show where a size is 1. REQUIRES:
// HasSums(product).
inline matmul::Arrangement ArrangementAlongK(const Problem& product) {
  WARPCALL_DCHECK(matmul::HasSums(product));
  matmul::Arrangement arrangement = matmul::ArrangementOf(product);
  const int64_t k = arrangement.arguments.k;
  arrangement.a = arrangement.b = matmul::Adjacent::kDepth;
  arrangement.arguments.a_stride = arrangement.arguments.b_stride = k;
  arrangement.a_in_vectors = arrangement.b_in_vectors =
      k % cuda::WidestVector(ElementBytes(product.inputs[0].data_type)) == 0;
  return arrangement;
}

// Plans a problem without sums for an implementation of `variants` variants.
inline absl::StatusOr<PlanPtr> PlanOfBias(const Problem& problem, const PlanContext& context,
                                          int variants) {
  if (context.variant != kRowsChoice)
    RETURN_IF_ERROR(CheckVariantNumber(context.variant, variants));
  return PlanWithoutSums(problem, context);
}

// A plan that launches `kernel`. The kernel writes the outputs or, with splits, partial sums that
// the outputs are then made of.
template <typename T>
PlanPtr NewTiledPlan(TiledKernel<T> kernel, const matmul::Tiling& tiling, const SumsFinish& finish,
                     const PlanContext& context) {
  const bool cut = tiling.choice.splits > 1;
  const Plan::Traits traits = {.workspace_bytes = tiling.workspace_bytes(),
                               .variant = tiling.variant,
                               .may_be_replayed = true};
  const cuda::LaunchedKernel launched(kernel, matmul::GridOf(tiling), tiling.gpu_kernels());
  return cuda::NewKernelPlan(
      traits, launched, context,
      [kernel, tiling, finish, cut](const Operands& operands,
                                    const LaunchContext& launch) -> absl::Status {
        ASSIGN_OR_RETURN(const matmul::Arguments arguments,
                         matmul::PrepareTiles(tiling, operands, launch));
        const Finish<T> on_tiles = {static_cast<const T*>(operands.inputs[kBias]),
                                    finish.activation};
        RETURN_IF_ERROR(cuda::Launch(kernel, matmul::GridOf(tiling), launch, arguments, on_tiles));
        return cut ? finish.Enqueue(arguments.partial, operands, launch) : absl::OkStatus();
      });
}

}  // namespace warpcall::linear
