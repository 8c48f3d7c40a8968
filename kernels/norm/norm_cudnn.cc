// cuDNN's layer and rms normalization, of its graph API. One pass of ours then checks the
// statistics that cuDNN returns of every row: rows whose squares leave float32's range, and rows
// whose elements are close together beside their mean, are computed again.
//
// In 16 bits cuDNN 9 rounds the normalised element before it weighs it: off by up to 1.5 units in
// the last place where half of one is right, as seen on an H200.
#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/fastest.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_cuda_launch.h"
#include "proto/common/status_macros.h"

namespace warpcall::norm {
namespace {

using cuda::CudnnDescriptor;
using cuda::CudnnGraph;
using cuda::CudnnTensorKind;

enum Id : int64_t { kIdX = 1, kIdWeight, kIdBias, kIdEpsilon, kIdY, kIdMean, kIdReciprocal };

constexpr size_t kLibraryBytes = size_t{1} << 20;  // plans that want more are left aside
// Largest count that 32-bit offsets reach: cuDNN promises no more.
constexpr int64_t kElementsMax = std::numeric_limits<int32_t>::max();
constexpr int kPlansMax = 2;  // making one may compile a kernel, which takes some 0.1 s

// Workspace bytes of one float per row, rounded up to the operands' alignment.
size_t RowBytes(const View& view) {
  const int64_t units = CeilDivide(view.rows, int64_t{kOperandAlignmentBytes / sizeof(float)});
  return SaturatingBytes(units, kOperandAlignmentBytes);
}

// Describes rows as images of n channels and one pixel. The training phase also returns means and
// reciprocals.
absl::StatusOr<CudnnGraph> MakeGraph(const View& view, cudnnHandle_t handle) {
  CudnnGraph graph;
  ASSIGN_OR_RETURN(
      CudnnDescriptor node,
      CudnnDescriptor::Create(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, "a cuDNN norm"));
  const cudnnBackendNormMode_t mode = view.centered ? CUDNN_LAYER_NORM : CUDNN_RMS_NORM;
  RETURN_IF_ERROR(node.Set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, mode));
  RETURN_IF_ERROR(node.Set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE,
                           CUDNN_NORM_FWD_TRAINING));
  const auto set = [&](cudnnBackendAttributeName_t name, Id id, std::vector<int64_t> dims,
                       CudnnTensorKind kind = CudnnTensorKind::kMemory) -> absl::Status {
    ASSIGN_OR_RETURN(const cudnnBackendDescriptor_t tensor,
                     graph.AddTensor({id, CUDNN_DATA_FLOAT, std::move(dims), kind}));
    return node.Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, tensor);
  };
  const std::vector<int64_t> x = {view.rows, view.n, 1, 1};
  const std::vector<int64_t> vector = {1, view.n, 1, 1};
  const std::vector<int64_t> column = {view.rows, 1, 1, 1};
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, kIdX, x));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, kIdWeight, vector));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, kIdEpsilon, {1, 1, 1, 1},
                      CudnnTensorKind::kByValue));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, kIdY, x));
  RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, kIdReciprocal, column));
  if (view.centered) {
    RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, kIdBias, vector));
    RETURN_IF_ERROR(set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, kIdMean, column));
  }
  RETURN_IF_ERROR(node.Finalize());
  const cudnnBackendDescriptor_t operation = graph.Add(std::move(node));
  RETURN_IF_ERROR(graph.Finish({operation}, handle));
  return graph;
}

struct Memory {
  const Operands& operands;
  void* workspace;
};

absl::Status Execute(const cuda::CudnnGraphPlan& plan, const View& view, cudnnHandle_t handle,
                     const Memory& memory) {
  const Operands& operands = memory.operands;
  auto* const means = static_cast<char*>(memory.workspace);
  char* const reciprocals = means + RowBytes(view);
  auto epsilon = static_cast<float>(view.epsilon);
  const auto input = [&](int i) {
    return const_cast<void*>(operands.inputs[static_cast<size_t>(i)]);
  };
  std::vector<cuda::CudnnBinding> bindings = {{kIdX, input(kX)},
                                              {kIdWeight, input(kWeight)},
                                              {kIdEpsilon, &epsilon},
                                              {kIdY, operands.outputs[0]},
                                              {kIdReciprocal, reciprocals}};
  if (view.centered) {
    bindings.push_back({kIdBias, input(kBias)});
    bindings.push_back({kIdMean, means});
  }
  return plan.Execute(handle, bindings, reciprocals + RowBytes(view));
}

size_t WorkspaceBytes(const View& view) { return 2 * RowBytes(view) + kLibraryBytes; }

class CudnnPlan final : public Plan {
 public:
  CudnnPlan(std::shared_ptr<const cuda::CudnnGraphPlan> plan, const View& view,
            cuda::Libraries* libraries)
      : Plan({.workspace_bytes = WorkspaceBytes(view), .is_compiled = true}),
        plan_(std::move(plan)),
        view_(view),
        libraries_(libraries) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    {
      ASSIGN_OR_RETURN(const cuda::CudnnLease lease,
                       libraries_->cudnn().Acquire(cuda::StreamOf(context)));
      RETURN_IF_ERROR(Execute(*plan_, view_, lease.get(), {operands, context.workspace}));
    }
    const char* const means = static_cast<const char*>(context.workspace);
    const RowStatistics known = {view_.centered ? reinterpret_cast<const float*>(means) : nullptr,
                                 reinterpret_cast<const float*>(means + RowBytes(view_))};
    return EnqueueRowsOutOfRange(view_, operands, known, context);
  }

 private:
  // cuDNN reports neither grid nor block.
  absl::StatusOr<LaunchShape> AskShape() const override { return LaunchShape{.gpu_kernels = 2}; }

  const std::shared_ptr<const cuda::CudnnGraphPlan> plan_;
  const View view_;
  cuda::Libraries* const libraries_;
};

// The fastest, where they may be tried.
absl::StatusOr<PlanPtr> MakeCudnnPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[kX].elements() == 0) return PlanNothing();
  const View view = ViewOf(problem);
  const Tryout* const tryout = context.tryout;
  const auto stream = static_cast<cudaStream_t>(tryout == nullptr ? nullptr : tryout->stream);
  ASSIGN_OR_RETURN(const cuda::CudnnLease lease, context.libraries->cudnn().Acquire(stream));
  ASSIGN_OR_RETURN(CudnnGraph graph, MakeGraph(view, lease.get()));
  ASSIGN_OR_RETURN(
      const cuda::CudnnGraphPlans plans,
      cuda::MakeCudnnPlans(
          std::make_shared<const CudnnGraph>(std::move(graph)), lease.get(),
          {.plans_max = kPlansMax, .workspace_bytes_max = static_cast<int64_t>(kLibraryBytes)}));
  int fastest = 0;
  if (tryout != nullptr) {
    ASSIGN_OR_RETURN(void* const workspace, tryout->workspace(WorkspaceBytes(view)));
    const auto enqueue = [&](int i) {
      return Execute(*plans[static_cast<size_t>(i)], view, lease.get(),
                     {*tryout->operands, workspace});
    };
    ASSIGN_OR_RETURN(fastest, cuda::FindFastest(static_cast<int>(plans.size()), stream, enqueue));
  }
  return std::make_shared<const CudnnPlan>(plans[static_cast<size_t>(fastest)], view,
                                           context.libraries);
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  RETURN_IF_ERROR(cuda::LoadCudnn().status());
  const int64_t elements = problem.inputs[kX].elements();
  if (elements <= kElementsMax) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("a tensor may have ", kElementsMax, " elements at most, got ", elements));
}

}  // namespace

Implementation CudnnNormRow() {
  return {.name = "cudnn_norm",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary =
              "cuDNN's normalization, and again by ours rows whose squares leave float32's range "
              "or that are too close to their mean",
          .data_types = {DataType::kFloat32},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCudnnPlan};
}

}  // namespace warpcall::norm
