// gelu as a graph for cuDNN.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/data_type.h"
#include "kernels/cuda/cudnn_descriptor.h"

namespace warpcall::gelu {

// What a graph is made for. cuDNN's tensors have at least three dimensions; an elementwise function
// does not care how its elements are counted.
struct CudnnPointwise {
  DataType data_type;
  std::array<int64_t, 3> dims;  // slowest first, no gaps
};

// The graph and all that it was made of: cuDNN does not say whether it keeps its own copies.
struct CudnnPointwiseGraph {
  std::vector<cuda::CudnnDescriptor> descriptors;  // the graph is the last

  const cuda::CudnnDescriptor& graph() const { return descriptors.back(); }
};

// Needs a device for `handle` only. UNIMPLEMENTED when cuDNN has no such function.
absl::StatusOr<CudnnPointwiseGraph> MakeCudnnGraph(const CudnnPointwise& pointwise,
                                                   cudnnHandle_t handle);

// An engine's plan for a graph. Plans are not safe to execute in several threads at once (cuDNN's
// release notes, limitations), so executions, which only enqueue, take turns. Kernels' code goes
// with their plan: whoever executes it keeps it until they have run.
class CudnnPointwisePlan {
 public:
  CudnnPointwisePlan(std::shared_ptr<const CudnnPointwiseGraph> graph,
                     cuda::CudnnDescriptor configuration, cuda::CudnnDescriptor plan)
      : graph_(std::move(graph)),
        configuration_(std::move(configuration)),
        plan_(std::move(plan)) {}
  CudnnPointwisePlan(const CudnnPointwisePlan&) = delete;
  CudnnPointwisePlan& operator=(const CudnnPointwisePlan&) = delete;

  struct Memory {
    const void* x;
    void* y;
    void* workspace;
  };
  absl::Status Execute(cudnnHandle_t handle, const Memory& memory) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::shared_ptr<const CudnnPointwiseGraph> graph_;
  const cuda::CudnnDescriptor configuration_;
  mutable absl::Mutex mutex_;
  const cuda::CudnnDescriptor plan_;
};

// At most `plans_max` plans that need at most `workspace_bytes_max`, what cuDNN expects to be best
// first. An error says why there is none.
struct CudnnPlanLimits {
  int plans_max;
  int64_t workspace_bytes_max;
};
absl::StatusOr<std::vector<std::shared_ptr<const CudnnPointwisePlan>>> MakeCudnnPlans(
    const std::shared_ptr<const CudnnPointwiseGraph>& graph, cudnnHandle_t handle,
    const CudnnPlanLimits& limits);

}  // namespace warpcall::gelu
