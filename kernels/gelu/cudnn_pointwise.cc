#include "kernels/gelu/cudnn_pointwise.h"

#include <limits>
#include <utility>
#include <vector>

#include "proto/common/status_macros.h"

namespace warpcall::gelu {
namespace {

using cuda::CudnnDescriptor;
using cuda::CudnnTensorKind;

constexpr int64_t kIdX = 1;
constexpr int64_t kIdY = 2;
constexpr int64_t kIdLowest = 3;
constexpr int64_t kIdZero = 4;
constexpr int64_t kIdBetween = 5;  // and those that follow

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

}  // namespace

// y = gelu(max(x, lowest)) + 0 tanh(x). cuDNN's gelu(-infinity) is NaN, and that of the lowest
// number is the limit, -0; but its maximum loses NaN, which the second term brings back. (Comparing
// and selecting is not compiled by its engines.)
absl::StatusOr<cuda::CudnnGraph> MakeCudnnGraph(const CudnnPointwise& pointwise,
                                                cudnnHandle_t handle) {
  const cudnnDataType_t type = cuda::ToCudnn(pointwise.data_type);
  const std::vector<int64_t> dims(pointwise.dims.begin(), pointwise.dims.end());
  const std::vector<int64_t> one = {1, 1, 1};
  cuda::CudnnGraph graph;
  ASSIGN_OR_RETURN(const auto x, graph.AddTensor({kIdX, type, dims}));
  ASSIGN_OR_RETURN(const auto y, graph.AddTensor({kIdY, type, dims}));
  ASSIGN_OR_RETURN(const auto lowest,
                   graph.AddTensor({kIdLowest, CUDNN_DATA_FLOAT, one, CudnnTensorKind::kByValue}));
  ASSIGN_OR_RETURN(const auto zero,
                   graph.AddTensor({kIdZero, CUDNN_DATA_FLOAT, one, CudnnTensorKind::kByValue}));
  std::array<cudnnBackendDescriptor_t, 4> between;  // bounded x, its gelu, tanh(x), 0 or NaN
  for (size_t i = 0; i < between.size(); ++i) {
    ASSIGN_OR_RETURN(between[i],
                     graph.AddTensor({kIdBetween + static_cast<int64_t>(i), CUDNN_DATA_FLOAT, dims,
                                      CudnnTensorKind::kVirtual}));
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
    step.parts.function = graph.Add(std::move(function));
    ASSIGN_OR_RETURN(CudnnDescriptor node, MakeNode(step.parts));
    nodes.push_back(graph.Add(std::move(node)));
  }
  RETURN_IF_ERROR(graph.Finish(nodes, handle));
  return graph;
}

absl::Status ExecutePointwise(const cuda::CudnnGraphPlan& plan, cudnnHandle_t handle,
                              const PointwiseMemory& memory) {
  float lowest = std::numeric_limits<float>::lowest();
  float zero = 0;
  const std::array<cuda::CudnnBinding, 4> bindings = {{{kIdX, const_cast<void*>(memory.x)},
                                                       {kIdY, memory.y},
                                                       {kIdLowest, &lowest},
                                                       {kIdZero, &zero}}};
  return plan.Execute(handle, bindings, memory.workspace);
}

}  // namespace warpcall::gelu
