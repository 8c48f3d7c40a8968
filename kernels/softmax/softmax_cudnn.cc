// cuDNN's softmax, of its legacy API: one call for each problem and no choice of engines.
#include <bit>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cudnn_api.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/status_macros.h"

namespace warpcall::softmax {
namespace {

using cuda::CudnnApi;

// cuDNN's documentation of cudnnSetTensor4dDescriptor ends tensors at 2^31 elements.
constexpr int64_t kElementsMax = std::numeric_limits<int32_t>::max();

// Seen with cuDNN 9 on an H200, in all three types: lengths of 3 to 511 are wrong but for powers of
// two; 512 and longer ones are right.
constexpr int64_t kWrongForInfinitiesMax = 512;

struct DestroyTensor {
  void operator()(cudnnTensorDescriptor_t tensor) const {
    (*cuda::LoadCudnn())->DestroyTensorDescriptor(tensor);
  }
};

// Calls one function, by handles that the device's lanes share.
class CudnnPlan final : public Plan {
 public:
  CudnnPlan(const CudnnApi* api, cuda::Libraries* libraries,
            std::unique_ptr<cudnnTensorStruct, DestroyTensor> tensor)
      : Plan({}), api_(api), libraries_(libraries), tensor_(std::move(tensor)) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    ASSIGN_OR_RETURN(const cuda::CudnnLease lease,
                     libraries_->cudnn().Acquire(cuda::StreamOf(context)));
    constexpr float kAlpha = 1;
    constexpr float kBeta = 0;  // y is not read
    const cudnnStatus_t status = api_->SoftmaxForward(
        lease.get(), CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &kAlpha, tensor_.get(),
        operands.inputs[0], &kBeta, tensor_.get(), operands.outputs[0]);
    if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
    return api_->ToStatus(status, "cudnnSoftmaxForward");
  }

 private:
  // cuDNN reports neither grid nor block, nor the number of kernels in a call. The shape counts the
  // call as one.
  absl::StatusOr<LaunchShape> AskShape() const override { return LaunchShape{.gpu_kernels = 1}; }

  const CudnnApi* const api_;
  cuda::Libraries* const libraries_;
  const std::unique_ptr<cudnnTensorStruct, DestroyTensor> tensor_;  // x's and y's alike
};

// Describes rows as images of n channels and one pixel, each softmaxed as a whole. A tryout runs
// the plan once, which reports cuDNN's refusals and loads its code.
absl::StatusOr<PlanPtr> MakeCudnnPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const View view = ViewOf(problem);
  ASSIGN_OR_RETURN(const CudnnApi* const api, cuda::LoadCudnn());
  cudnnTensorDescriptor_t created = nullptr;
  RETURN_IF_ERROR(api->ToStatus(api->CreateTensorDescriptor(&created), "describing a tensor"));
  std::unique_ptr<cudnnTensorStruct, DestroyTensor> tensor(created);
  RETURN_IF_ERROR(api->ToStatus(
      api->SetTensor4dDescriptor(created, CUDNN_TENSOR_NCHW,
                                 cuda::ToCudnn(problem.inputs[0].data_type),
                                 static_cast<int>(view.outer), static_cast<int>(view.n), 1, 1),
      "describing a tensor"));
  const auto plan = std::make_shared<const CudnnPlan>(api, context.libraries, std::move(tensor));
  if (const Tryout* const tryout = context.tryout; tryout != nullptr)
    RETURN_IF_ERROR(plan->Enqueue(*tryout->operands, {.stream = tryout->stream}));
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
        "cuDNN returns 0, not NaN, for rows of -infinity if the axis is shorter than ",
        kWrongForInfinitiesMax, " and its length is not a power of two; the length is ", n));
  RETURN_IF_ERROR(cuda::LoadCudnn().status());
  if (elements <= kElementsMax) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("a tensor may have ", kElementsMax, " elements at most, got ", elements));
}

}  // namespace

Implementation CudnnSoftmaxRow() {
  return {.name = "cudnn_softmax",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cuDNN's softmax, cudnnSoftmaxForward; rounds twice in 16 bits",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCudnnPlan};
}

}  // namespace warpcall::softmax
