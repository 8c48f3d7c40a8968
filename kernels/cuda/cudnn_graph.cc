#include "kernels/cuda/cudnn_graph.h"

#include <array>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {
namespace {

constexpr int64_t kVectorBytes = 16;  // the widest access, and all that an engine can ask for
constexpr int kConfigurationsMax = 8;

// Engine configurations for `graph`, as `mode` ranks them.
absl::StatusOr<std::vector<CudnnDescriptor>> Propose(const CudnnDescriptor& graph,
                                                     cudnnBackendHeurMode_t mode) {
  ASSIGN_OR_RETURN(
      CudnnDescriptor heuristic,
      CudnnDescriptor::Create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "cuDNN's heuristic"));
  RETURN_IF_ERROR(heuristic.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  RETURN_IF_ERROR(heuristic.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
  RETURN_IF_ERROR(heuristic.Finalize());
  std::vector<CudnnDescriptor> configurations;
  std::array<cudnnBackendDescriptor_t, kConfigurationsMax> filled;
  for (cudnnBackendDescriptor_t& descriptor : filled) {
    ASSIGN_OR_RETURN(CudnnDescriptor configuration,
                     CudnnDescriptor::Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                             "a configuration of a cuDNN engine"));
    descriptor = configuration.get();
    configurations.push_back(std::move(configuration));
  }
  ASSIGN_OR_RETURN(const int64_t count,
                   heuristic.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, absl::MakeSpan(filled)));
  while (static_cast<int64_t>(configurations.size()) > count) configurations.pop_back();
  return configurations;
}

// UNIMPLEMENTED when it needs more workspace than allowed.
absl::StatusOr<CudnnDescriptor> MakePlan(const CudnnDescriptor& configuration, cudnnHandle_t handle,
                                         int64_t workspace_bytes_max) {
  ASSIGN_OR_RETURN(
      CudnnDescriptor plan,
      CudnnDescriptor::Create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a cuDNN plan"));
  RETURN_IF_ERROR(plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle));
  RETURN_IF_ERROR(plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration));
  RETURN_IF_ERROR(plan.Finalize());
  ASSIGN_OR_RETURN(const int64_t bytes, plan.GetInt64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  if (bytes > workspace_bytes_max)
    return absl::UnimplementedError(absl::StrCat(
        "a cuDNN plan needs ", bytes, " bytes of workspace; ", workspace_bytes_max, " are given"));
  return plan;
}

}  // namespace

absl::StatusOr<cudnnBackendDescriptor_t> CudnnGraph::AddTensor(const CudnnTensor& tensor) {
  ASSIGN_OR_RETURN(CudnnDescriptor made,
                   CudnnDescriptor::Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a cuDNN tensor"));
  std::vector<int64_t> strides(tensor.dims.size(), 1);
  for (size_t i = strides.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * tensor.dims[i + 1];
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, tensor.type));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                           absl::Span<const int64_t>(tensor.dims)));
  RETURN_IF_ERROR(
      made.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, absl::Span<const int64_t>(strides)));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, tensor.id));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kVectorBytes));
  const bool is_virtual = tensor.kind == CudnnTensorKind::kVirtual;
  const bool by_value = tensor.kind == CudnnTensorKind::kByValue;
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value));
  RETURN_IF_ERROR(made.Finalize());
  return Add(std::move(made));
}

cudnnBackendDescriptor_t CudnnGraph::Add(CudnnDescriptor descriptor) {
  WARPCALL_DCHECK(!finished_);
  descriptors_.push_back(std::move(descriptor));
  return descriptors_.back().get();
}

absl::Status CudnnGraph::Finish(absl::Span<const cudnnBackendDescriptor_t> operations,
                                cudnnHandle_t handle) {
  ASSIGN_OR_RETURN(
      CudnnDescriptor graph,
      CudnnDescriptor::Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a cuDNN graph"));
  RETURN_IF_ERROR(
      graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations));
  RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  RETURN_IF_ERROR(graph.Finalize());
  Add(std::move(graph));
  finished_ = true;
  return absl::OkStatus();
}

absl::StatusOr<CudnnGraphPlans> MakeCudnnPlans(const std::shared_ptr<const CudnnGraph>& graph,
                                               cudnnHandle_t handle,
                                               const CudnnPlanLimits& limits) {
  CudnnGraphPlans plans;
  absl::Status failure;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    absl::StatusOr<std::vector<CudnnDescriptor>> configurations = Propose(graph->graph(), mode);
    if (!configurations.ok()) {
      failure.Update(configurations.status());
      continue;
    }
    for (CudnnDescriptor& configuration : *configurations) {
      if (static_cast<int>(plans.size()) == limits.plans_max) return plans;
      absl::StatusOr<CudnnDescriptor> plan =
          MakePlan(configuration, handle, limits.workspace_bytes_max);
      failure.Update(plan.status());
      if (!plan.ok()) continue;
      plans.push_back(std::make_shared<const CudnnGraphPlan>(graph, std::move(configuration),
                                                             *std::move(plan)));
    }
    // The fallback's engines are general and slow.
    if (!plans.empty()) return plans;
  }
  if (!failure.ok()) return failure;
  return absl::UnimplementedError("cuDNN proposes no engine for this graph");
}

absl::Status CudnnGraphPlan::Execute(cudnnHandle_t handle, absl::Span<const CudnnBinding> bindings,
                                     void* workspace) const {
  ASSIGN_OR_RETURN(
      CudnnDescriptor pack,
      CudnnDescriptor::Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "a cuDNN variant pack"));
  absl::InlinedVector<int64_t, 8> ids;
  absl::InlinedVector<void*, 8> pointers;
  for (const CudnnBinding& binding : bindings) {
    ids.push_back(binding.id);
    pointers.push_back(binding.memory);
  }
  RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                           absl::Span<const int64_t>(ids)));
  RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                           absl::Span<void* const>(pointers)));
  RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  RETURN_IF_ERROR(pack.Finalize());
  ASSIGN_OR_RETURN(const CudnnApi* const api, LoadCudnn());
  absl::MutexLock lock(&mutex_);
  const cudnnStatus_t status = api->BackendExecute(handle, plan_.get(), pack.get());
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  return api->ToStatus(status, "executing a cuDNN plan");
}

}  // namespace warpcall::cuda
