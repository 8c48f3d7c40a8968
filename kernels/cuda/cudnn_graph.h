// cuDNN's graph API: a graph of operations on tensors, and the plans that engines have for it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/cuda/cudnn_descriptor.h"
#include "proto/common/check.h"

namespace warpcall::cuda {

enum class CudnnTensorKind : uint8_t {
  kMemory,
  kVirtual,  // between two nodes, never stored
  kByValue,  // one number, read from host memory when a plan is executed
};

struct CudnnTensor {
  int64_t id;  // unique in the graph
  cudnnDataType_t type;
  std::vector<int64_t> dims;  // slowest first, no gaps
  CudnnTensorKind kind = CudnnTensorKind::kMemory;
};

// A graph and all that it was made of: cuDNN does not say whether it keeps its own copies.
class CudnnGraph {
 public:
  // The descriptors stay the graph's.
  absl::StatusOr<cudnnBackendDescriptor_t> AddTensor(const CudnnTensor& tensor);
  cudnnBackendDescriptor_t Add(CudnnDescriptor descriptor);
  // Makes the graph of these operations. Needs a device for `handle` only.
  absl::Status Finish(absl::Span<const cudnnBackendDescriptor_t> operations, cudnnHandle_t handle);

  // REQUIRES: finished.
  const CudnnDescriptor& graph() const {
    WARPCALL_DCHECK(finished_);
    return descriptors_.back();
  }

 private:
  std::vector<CudnnDescriptor> descriptors_;  // the graph is the last once it is finished
  bool finished_ = false;
};

// The memory of a tensor that is not virtual: on the device, and by value on the host.
struct CudnnBinding {
  int64_t id;
  void* memory;
};

// An engine's plan for a graph. Plans are not safe to execute in several threads at once (cuDNN's
// release notes, limitations), so executions, which only enqueue, take turns. Kernels' code is
// freed with the plan: the caller keeps the plan until its kernels have run.
class CudnnGraphPlan {
 public:
  CudnnGraphPlan(std::shared_ptr<const CudnnGraph> graph, CudnnDescriptor configuration,
                 CudnnDescriptor plan)
      : graph_(std::move(graph)),
        configuration_(std::move(configuration)),
        plan_(std::move(plan)) {}
  CudnnGraphPlan(const CudnnGraphPlan&) = delete;
  CudnnGraphPlan& operator=(const CudnnGraphPlan&) = delete;

  absl::Status Execute(cudnnHandle_t handle, absl::Span<const CudnnBinding> bindings,
                       void* workspace) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::shared_ptr<const CudnnGraph> graph_;
  const CudnnDescriptor configuration_;
  mutable absl::Mutex mutex_;
  const CudnnDescriptor plan_;
};

using CudnnGraphPlans = std::vector<std::shared_ptr<const CudnnGraphPlan>>;

// Limits the search to `plans_max` plans that need at most `workspace_bytes_max`, cuDNN's expected
// best first. Without any such plan the error gives the reason.
struct CudnnPlanLimits {
  int plans_max;
  int64_t workspace_bytes_max;
};
absl::StatusOr<CudnnGraphPlans> MakeCudnnPlans(const std::shared_ptr<const CudnnGraph>& graph,
                                               cudnnHandle_t handle, const CudnnPlanLimits& limits);

}  // namespace warpcall::cuda
