// cuDNN's softmax, of its legacy API: one call for each problem and no choice of engines.
#include <bit>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/cudnn_api.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/softmax/softmax.h"

namespace warpcall::softmax {
namespace {

using cuda::CudnnApi;

// cuDNN's documentation of cudnnSetTensor4dDescriptor ends tensors at 2^31 elements.
constexpr int64_t kElementsMax = std::numeric_limits<int32_t>::max();

// Seen with cuDNN 9 on an H200, in all three types: lengths of 3 to 511 are wrong but for powers of
// two; 512 and what is longer are right.
constexpr int64_t kWrongForInfinitiesMax = 512;

struct DestroyTensor {
  void operator()(cudnnTensorDescriptor_t tensor) const {
    (*cuda::LoadCudnn())->DestroyTensorDescriptor(tensor);
  }
};

struct Plan {
  const CudnnApi* api;
  std::unique_ptr<cudnnTensorStruct, DestroyTensor> tensor;  // x's and y's alike
};

cuda::PlanKey KeyOf(const Problem& problem) {
  const View view = ViewOf(problem);
  return {.row = "cudnn_softmax",
          .numbers = {static_cast<int64_t>(problem.inputs[0].data_type), view.outer, view.n}};
}

absl::Status Run(const Plan& plan, const Operands& operands, cudnnHandle_t handle) {
  constexpr float kAlpha = 1;
  constexpr float kBeta = 0;  // y is not read
  const cudnnStatus_t status = plan.api->SoftmaxForward(
      handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &kAlpha, plan.tensor.get(),
      operands.inputs[0], &kBeta, plan.tensor.get(), operands.outputs[0]);
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  return plan.api->ToStatus(status, "cudnnSoftmaxForward");
}

// Rows as images of n channels and one pixel, each softmaxed as a whole.
absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(const Problem& problem) {
  const View view = ViewOf(problem);
  auto plan = std::make_shared<Plan>();
  ASSIGN_OR_RETURN(plan->api, cuda::LoadCudnn());
  cudnnTensorDescriptor_t tensor = nullptr;
  RETURN_IF_ERROR(
      plan->api->ToStatus(plan->api->CreateTensorDescriptor(&tensor), "describing a tensor"));
  plan->tensor.reset(tensor);
  RETURN_IF_ERROR(
      plan->api->ToStatus(plan->api->SetTensor4dDescriptor(
                              tensor, CUDNN_TENSOR_NCHW, cuda::ToCudnn(problem.inputs[0].data_type),
                              static_cast<int>(view.outer), static_cast<int>(view.n), 1, 1),
                          "describing a tensor"));
  return plan;
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  const int64_t elements = problem.inputs[0].elements();
  const int64_t inner = elements == 0 ? 1 : ViewOf(problem).inner;
  // Over channels of several pixels cuDNN was off by 6e-5 in float32, far outside the tolerance.
  if (inner > 1)
    return absl::UnimplementedError(absl::StrCat(
        "the axis has a stride of ", inner,
        " elements, and along such axes cuDNN is less exact than allowed; the stride must be 1"));
  const int64_t n = elements == 0 ? 1 : ViewOf(problem).n;
  if (n < kWrongForInfinitiesMax && !std::has_single_bit(static_cast<uint64_t>(n)))
    return absl::UnimplementedError(absl::StrCat(
        "cuDNN gives 0 and not NaN for -infinity throughout where the axis is shorter than ",
        kWrongForInfinitiesMax, " and no power of two; it has ", n));
  RETURN_IF_ERROR(cuda::LoadCudnn().status());
  if (elements <= kElementsMax) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("a tensor may have ", kElementsMax, " elements at most, got ", elements));
}

// The first time it runs once, so that what cuDNN refuses is known and its code is loaded.
absl::Status Prepare(const Problem& problem, const Operands& operands, LaunchContext* context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const cuda::CudnnLease lease,
                   context->libraries->cudnn().Acquire(cuda::StreamOf(*context)));
  const auto make = [&]() -> cuda::PlanCache::Made<Plan> {
    ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, MakePlan(problem));
    RETURN_IF_ERROR(Run(*plan, operands, lease.get()));
    return plan;
  };
  return cuda::KeepForLaunch(context->libraries->plans().GetOrMake<Plan>(KeyOf(problem), make),
                             context);
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Plan* const plan, cuda::PreparedPlan<Plan>(context, "cudnn_softmax"));
  ASSIGN_OR_RETURN(const cuda::CudnnLease lease,
                   context.libraries->cudnn().Acquire(cuda::StreamOf(context)));
  return Run(*plan, operands, lease.get());
}

// cuDNN tells neither grid nor block, nor how many kernels a call takes: what is known is the call.
absl::StatusOr<LaunchShape> ShapeOfCall(const Problem& problem, const DeviceProperties&) {
  LaunchShape shape;
  shape.gpu_kernels = problem.inputs[0].elements() == 0 ? 0 : 1;
  return shape;
}

}  // namespace

Implementation CudnnSoftmaxRow() {
  return {.name = "cudnn_softmax",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cuDNN's softmax, cudnnSoftmaxForward; rounds twice in 16 bits",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = ShapeOfCall,
          .prepare = Prepare};
}

}  // namespace warpcall::softmax
