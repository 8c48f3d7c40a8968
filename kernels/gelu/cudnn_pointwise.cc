#include "kernels/gelu/cudnn_pointwise.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"

namespace warpcall::gelu {
namespace {

using cuda::CudnnDescriptor;

constexpr int64_t kIdX = 1;
constexpr int64_t kIdY = 2;
constexpr int64_t kIdLowest = 3;
constexpr int64_t kIdZero = 4;
constexpr int64_t kIdBetween = 5;     // and those that follow
constexpr int64_t kVectorBytes = 16;  // the widest access, and all that an engine can ask for
constexpr int kConfigurationsMax = 8;

enum class TensorKind : uint8_t {
  kMemory,
  kVirtual,  // between two nodes, never stored
  kByValue,  // one number, read from host memory when a plan is executed
};

struct Tensor {
  int64_t id;
  cudnnDataType_t type;
  std::array<int64_t, 3> dims;
  TensorKind kind;
};

absl::StatusOr<CudnnDescriptor> MakeTensor(const Tensor& tensor) {
  ASSIGN_OR_RETURN(CudnnDescriptor made,
                   CudnnDescriptor::Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a cuDNN tensor"));
  const std::array<int64_t, 3>& dims = tensor.dims;
  const std::array<int64_t, 3> strides = {dims[1] * dims[2], dims[2], 1};
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, tensor.type));
  RETURN_IF_ERROR(
      made.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, absl::Span<const int64_t>(dims)));
  RETURN_IF_ERROR(
      made.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, absl::Span<const int64_t>(strides)));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, tensor.id));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kVectorBytes));
  const bool is_virtual = tensor.kind == TensorKind::kVirtual;
  const bool by_value = tensor.kind == TensorKind::kByValue;
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual));
  RETURN_IF_ERROR(made.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value));
  RETURN_IF_ERROR(made.Finalize());
  return made;
}

absl::StatusOr<CudnnDescriptor> MakeFunction(cudnnPointwiseMode_t mode) {
  ASSIGN_OR_RETURN(CudnnDescriptor function,
                   CudnnDescriptor::Create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a cuDNN function"));
  RETURN_IF_ERROR(function.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode));
  RETURN_IF_ERROR(
      function.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
  RETURN_IF_ERROR(function.Finalize());
  return function;
}

// Null where the function does not have it.
struct NodeParts {
  cudnnBackendDescriptor_t function = nullptr;
  cudnnBackendDescriptor_t x = nullptr;
  cudnnBackendDescriptor_t b = nullptr;
  cudnnBackendDescriptor_t y = nullptr;
};

absl::StatusOr<CudnnDescriptor> MakeNode(const NodeParts& parts) {
  ASSIGN_OR_RETURN(CudnnDescriptor node,
                   CudnnDescriptor::Create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                                           "a node of a cuDNN graph"));
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t part) {
    return part == nullptr ? absl::OkStatus() : node.Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part);
  };
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts.function));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, parts.x));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, parts.b));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts.y));
  RETURN_IF_ERROR(node.Finalize());
  return node;
}

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

// y = gelu(max(x, lowest)) + 0 tanh(x). cuDNN's gelu(-infinity) is NaN, and that of the lowest
// number is the limit, -0; but its maximum loses NaN, which the second term brings back. (Comparing
// and selecting is not compiled by its engines.)
absl::StatusOr<CudnnPointwiseGraph> MakeCudnnGraph(const CudnnPointwise& pointwise,
                                                   cudnnHandle_t handle) {
  const cudnnDataType_t type = cuda::ToCudnn(pointwise.data_type);
  const std::array<int64_t, 3>& dims = pointwise.dims;
  constexpr std::array<int64_t, 3> kOne = {1, 1, 1};
  CudnnPointwiseGraph result;
  std::vector<CudnnDescriptor>& made = result.descriptors;
  const auto make_tensor = [&](const Tensor& tensor) -> absl::StatusOr<cudnnBackendDescriptor_t> {
    ASSIGN_OR_RETURN(CudnnDescriptor descriptor, MakeTensor(tensor));
    made.push_back(std::move(descriptor));
    return made.back().get();
  };
  ASSIGN_OR_RETURN(const auto x, make_tensor({kIdX, type, dims, TensorKind::kMemory}));
  ASSIGN_OR_RETURN(const auto y, make_tensor({kIdY, type, dims, TensorKind::kMemory}));
  ASSIGN_OR_RETURN(const auto lowest,
                   make_tensor({kIdLowest, CUDNN_DATA_FLOAT, kOne, TensorKind::kByValue}));
  ASSIGN_OR_RETURN(const auto zero,
                   make_tensor({kIdZero, CUDNN_DATA_FLOAT, kOne, TensorKind::kByValue}));
  std::array<cudnnBackendDescriptor_t, 4> between;  // bounded x, its gelu, tanh(x), 0 or NaN
  for (size_t i = 0; i < between.size(); ++i) {
    ASSIGN_OR_RETURN(between[i], make_tensor({kIdBetween + static_cast<int64_t>(i),
                                              CUDNN_DATA_FLOAT, dims, TensorKind::kVirtual}));
  }
  struct Step {
    cudnnPointwiseMode_t mode;
    NodeParts parts;
  };
  std::vector<cudnnBackendDescriptor_t> nodes;
  for (Step step : {Step{CUDNN_POINTWISE_MAX, {.x = x, .b = lowest, .y = between[0]}},
                    Step{CUDNN_POINTWISE_GELU_FWD, {.x = between[0], .y = between[1]}},
                    Step{CUDNN_POINTWISE_TANH_FWD, {.x = x, .y = between[2]}},
                    Step{CUDNN_POINTWISE_MUL, {.x = between[2], .b = zero, .y = between[3]}},
                    Step{CUDNN_POINTWISE_ADD, {.x = between[1], .b = between[3], .y = y}}}) {
    ASSIGN_OR_RETURN(CudnnDescriptor function, MakeFunction(step.mode));
    step.parts.function = function.get();
    ASSIGN_OR_RETURN(CudnnDescriptor node, MakeNode(step.parts));
    nodes.push_back(node.get());
    made.push_back(std::move(function));
    made.push_back(std::move(node));
  }
  ASSIGN_OR_RETURN(
      CudnnDescriptor graph,
      CudnnDescriptor::Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a cuDNN graph"));
  RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            absl::Span<const cudnnBackendDescriptor_t>(nodes)));
  RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  RETURN_IF_ERROR(graph.Finalize());
  made.push_back(std::move(graph));
  return result;
}

absl::StatusOr<std::vector<std::shared_ptr<const CudnnPointwisePlan>>> MakeCudnnPlans(
    const std::shared_ptr<const CudnnPointwiseGraph>& graph, cudnnHandle_t handle,
    const CudnnPlanLimits& limits) {
  std::vector<std::shared_ptr<const CudnnPointwisePlan>> plans;
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
      plans.push_back(std::make_shared<const CudnnPointwisePlan>(graph, std::move(configuration),
                                                                 *std::move(plan)));
    }
    // The fallback's engines are general and slow.
    if (!plans.empty()) return plans;
  }
  if (!failure.ok()) return failure;
  return absl::UnimplementedError("cuDNN proposes no engine for this gelu");
}

absl::Status CudnnPointwisePlan::Execute(cudnnHandle_t handle, const Memory& memory) const {
  ASSIGN_OR_RETURN(
      CudnnDescriptor pack,
      CudnnDescriptor::Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "a cuDNN variant pack"));
  constexpr std::array<int64_t, 4> kIds = {kIdX, kIdY, kIdLowest, kIdZero};
  float lowest = std::numeric_limits<float>::lowest();
  float zero = 0;
  const std::array<void*, 4> pointers = {const_cast<void*>(memory.x), memory.y, &lowest, &zero};
  RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                           absl::Span<const int64_t>(kIds)));
  RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                           absl::Span<void* const>(pointers)));
  RETURN_IF_ERROR(
      pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, memory.workspace));
  RETURN_IF_ERROR(pack.Finalize());
  ASSIGN_OR_RETURN(const cuda::CudnnApi* const api, cuda::LoadCudnn());
  absl::MutexLock lock(&mutex_);
  const cudnnStatus_t status = api->BackendExecute(handle, plan_.get(), pack.get());
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  return api->ToStatus(status, "executing a cuDNN plan");
}

}  // namespace warpcall::gelu
