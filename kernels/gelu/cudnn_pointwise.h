// gelu as a graph for cuDNN.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cudnn_graph.h"
#include "proto/common/data_type.h"

namespace warpcall::gelu {

// Data type and shape of a graph. cuDNN's tensors have at least three dimensions; the split of the
// elements among the dimensions does not change the result of an elementwise function.
struct CudnnPointwise {
  DataType data_type;
  std::array<int64_t, 3> dims;  // slowest first, no gaps
};

// Needs a device only for `handle`. UNIMPLEMENTED if cuDNN has no such function.
absl::StatusOr<cuda::CudnnGraph> MakeCudnnGraph(const CudnnPointwise& pointwise,
                                                cudnnHandle_t handle);

struct PointwiseMemory {
  const void* x;
  void* y;
  void* workspace;
};
// Executes a plan for such a graph.
absl::Status ExecutePointwise(const cuda::CudnnGraphPlan& plan, cudnnHandle_t handle,
                              const PointwiseMemory& memory);

}  // namespace warpcall::gelu
