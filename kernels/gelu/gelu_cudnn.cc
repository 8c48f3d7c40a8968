// cuDNN's pointwise engines: the fastest of the plans for its graph.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "kernels/cuda/fastest.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/gelu/cudnn_pointwise.h"
#include "kernels/gelu/gelu.h"

namespace warpcall::gelu {
namespace {

using Plan = CudnnPointwisePlan;
using Plans = std::vector<std::shared_ptr<const Plan>>;

// A pointwise node needs none; plans that want more than this are left aside.
constexpr size_t kWorkspaceBytes = size_t{1} << 20;
// What offsets of 32 bits reach: cuDNN promises no more for its pointwise engines.
constexpr int64_t kElementsMax = std::numeric_limits<int32_t>::max();
// Making a plan may compile a kernel, which takes some 0.1 s: the first few of each view.
constexpr int kPlansPerView = 2;
// Rows of the second view: long enough that a row is many vectors.
constexpr int64_t kRowElementsMax = 1024;
constexpr int64_t kRowElementsMin = 64;

// How the elements may be laid out for cuDNN, which tiles and vectorizes by dimension: in one row,
// and, where the count has a power of two as a factor, in many.
std::vector<std::array<int64_t, 3>> ViewsOf(int64_t elements) {
  std::vector<std::array<int64_t, 3>> views = {{1, 1, elements}};
  const int64_t row = std::min(elements & -elements, kRowElementsMax);
  if (row >= kRowElementsMin && row < elements) views.push_back({1, elements / row, row});
  return views;
}

cuda::PlanKey KeyOf(const Problem& problem) {
  const TensorSpec& x = problem.inputs[0];
  return {.row = "cudnn_pointwise", .numbers = {static_cast<int64_t>(x.data_type), x.elements()}};
}

Plan::Memory MemoryOf(const Operands& operands, const LaunchContext& context) {
  return {.x = operands.inputs[0], .y = operands.outputs[0], .workspace = context.workspace};
}

absl::StatusOr<Plans> MakePlans(const Problem& problem, cudnnHandle_t handle) {
  const TensorSpec& x = problem.inputs[0];
  const CudnnPlanLimits limits{.plans_max = kPlansPerView,
                               .workspace_bytes_max = static_cast<int64_t>(kWorkspaceBytes)};
  Plans plans;
  absl::Status failure;
  for (const std::array<int64_t, 3>& dims : ViewsOf(x.elements())) {
    absl::StatusOr<CudnnPointwiseGraph> graph =
        MakeCudnnGraph({.data_type = x.data_type, .dims = dims}, handle);
    failure.Update(graph.status());
    if (!graph.ok()) continue;
    absl::StatusOr<Plans> made = MakeCudnnPlans(
        std::make_shared<const CudnnPointwiseGraph>(*std::move(graph)), handle, limits);
    failure.Update(made.status());
    if (made.ok()) plans.insert(plans.end(), made->begin(), made->end());
  }
  if (plans.empty()) return failure;
  return plans;
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  RETURN_IF_ERROR(cuda::LoadCudnn().status());
  const int64_t elements = problem.inputs[0].elements();
  if (UsesTanh(problem))
    return absl::UnimplementedError(
        "takes approximate=none: cuDNN's tanh is off by up to 5e-6 |x|, ten times what is allowed");
  if (elements <= kElementsMax) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("a tensor may have ", kElementsMax, " elements at most, got ", elements));
}

size_t WorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  return problem.inputs[0].elements() == 0 ? 0 : kWorkspaceBytes;
}

absl::Status Prepare(const Problem& problem, const Operands& operands, LaunchContext* context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  const cudaStream_t stream = cuda::StreamOf(*context);
  ASSIGN_OR_RETURN(const cuda::CudnnLease lease, context->libraries->cudnn().Acquire(stream));
  // Waits for all that it tries, so that none of the plans it leaves aside is still at work.
  const auto make = [&]() -> cuda::PlanCache::Made<Plan> {
    ASSIGN_OR_RETURN(const Plans plans, MakePlans(problem, lease.get()));
    ASSIGN_OR_RETURN(const int fastest,
                     cuda::FindFastest(static_cast<int>(plans.size()), stream, [&](int i) {
                       return plans[i]->Execute(lease.get(), MemoryOf(operands, *context));
                     }));
    return plans[fastest];
  };
  return cuda::KeepForLaunch(
      context->libraries->compiled_plans().GetOrMake<Plan>(KeyOf(problem), make), context);
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  if (problem.inputs[0].elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Plan* const plan, cuda::PreparedPlan<Plan>(context, "cudnn_pointwise"));
  ASSIGN_OR_RETURN(const cuda::CudnnLease lease,
                   context.libraries->cudnn().Acquire(cuda::StreamOf(context)));
  return plan->Execute(lease.get(), MemoryOf(operands, context));
}

// cuDNN tells neither grid nor block; pointwise nodes are fused into one kernel.
absl::StatusOr<LaunchShape> ShapeOfPlan(const Problem& problem, const DeviceProperties&) {
  LaunchShape shape;
  shape.gpu_kernels = problem.inputs[0].elements() == 0 ? 0 : 1;
  return shape;
}

}  // namespace

Implementation CudnnPointwiseRow() {
  return {.name = "cudnn_pointwise",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cuDNN's pointwise engines, the fastest of the plans it proposes",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .workspace_bytes = WorkspaceBytes,
          .launch = Launch,
          .shape = ShapeOfPlan,
          .prepare = Prepare};
}

}  // namespace warpcall::gelu
