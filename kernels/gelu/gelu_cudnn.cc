// cuDNN's pointwise engines: the fastest of the plans for its graph.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/fastest.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/gelu/cudnn_pointwise.h"
#include "kernels/gelu/gelu.h"
#include "proto/common/status_macros.h"

namespace warpcall::gelu {
namespace {

using Candidates = cuda::CudnnGraphPlans;

// A pointwise node needs no workspace; plans that want more than this are skipped.
constexpr size_t kWorkspaceBytes = size_t{1} << 20;
// Largest count that 32-bit offsets reach: cuDNN promises no more for its pointwise engines.
constexpr int64_t kElementsMax = std::numeric_limits<int32_t>::max();
// Plans tried of each view: making a plan may compile a kernel, which takes some 0.1 s.
constexpr int kPlansPerView = 2;
// Rows of the second view: long enough that a row is many vectors.
constexpr int64_t kRowElementsMax = 1024;
constexpr int64_t kRowElementsMin = 64;

// Layouts of the elements for cuDNN, which tiles and vectorizes by dimension: one row and, if the
// count has a power of two as a factor, many rows.
std::vector<std::array<int64_t, 3>> ViewsOf(int64_t elements) {
  std::vector<std::array<int64_t, 3>> views = {{1, 1, elements}};
  const int64_t row = std::min(elements & -elements, kRowElementsMax);
  if (row >= kRowElementsMin && row < elements) views.push_back({1, elements / row, row});
  return views;
}

PointwiseMemory MemoryOf(const Operands& operands, void* workspace) {
  return {.x = operands.inputs[0], .y = operands.outputs[0], .workspace = workspace};
}

absl::StatusOr<Candidates> MakeCandidates(const Problem& problem, cudnnHandle_t handle) {
  const TensorSpec& x = problem.inputs[0];
  const cuda::CudnnPlanLimits limits{.plans_max = kPlansPerView,
                                     .workspace_bytes_max = static_cast<int64_t>(kWorkspaceBytes)};
  Candidates plans;
  absl::Status failure;
  for (const std::array<int64_t, 3>& dims : ViewsOf(x.elements())) {
    absl::StatusOr<cuda::CudnnGraph> graph =
        MakeCudnnGraph({.data_type = x.data_type, .dims = dims}, handle);
    failure.Update(graph.status());
    if (!graph.ok()) continue;
    absl::StatusOr<Candidates> made = cuda::MakeCudnnPlans(
        std::make_shared<const cuda::CudnnGraph>(*std::move(graph)), handle, limits);
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

class CudnnPlan final : public Plan {
 public:
  CudnnPlan(std::shared_ptr<const cuda::CudnnGraphPlan> pointwise, cuda::Libraries* libraries)
      : Plan({.workspace_bytes = kWorkspaceBytes, .is_compiled = true}),
        pointwise_(std::move(pointwise)),
        libraries_(libraries) {}

  absl::Status Enqueue(const Operands& operands, const LaunchContext& context) const override {
    ASSIGN_OR_RETURN(const cuda::CudnnLease lease,
                     libraries_->cudnn().Acquire(cuda::StreamOf(context)));
    return ExecutePointwise(*pointwise_, lease.get(), MemoryOf(operands, context.workspace));
  }

 private:
  // cuDNN reports neither grid nor block; it fuses pointwise nodes into one kernel.
  absl::StatusOr<LaunchShape> AskShape() const override { return LaunchShape{.gpu_kernels = 1}; }

  const std::shared_ptr<const cuda::CudnnGraphPlan> pointwise_;
  cuda::Libraries* const libraries_;
};

// The fastest, where they may be tried. Waits for all that it tries, so that none of the candidates
// that it leaves aside is still at work.
absl::StatusOr<PlanPtr> MakeCudnnPlan(const Problem& problem, const PlanContext& context) {
  if (problem.inputs[0].elements() == 0) return PlanNothing();
  const Tryout* const tryout = context.tryout;
  const auto stream = static_cast<cudaStream_t>(tryout == nullptr ? nullptr : tryout->stream);
  ASSIGN_OR_RETURN(const cuda::CudnnLease lease, context.libraries->cudnn().Acquire(stream));
  ASSIGN_OR_RETURN(const Candidates candidates, MakeCandidates(problem, lease.get()));
  int fastest = 0;
  if (tryout != nullptr) {
    ASSIGN_OR_RETURN(void* const workspace, tryout->workspace(kWorkspaceBytes));
    const auto enqueue = [&](int i) {
      return ExecutePointwise(*candidates[i], lease.get(), MemoryOf(*tryout->operands, workspace));
    };
    ASSIGN_OR_RETURN(fastest,
                     cuda::FindFastest(static_cast<int>(candidates.size()), stream, enqueue));
  }
  return std::make_shared<const CudnnPlan>(candidates[fastest], context.libraries);
}

}  // namespace

Implementation CudnnPointwiseRow() {
  return {.name = "cudnn_pointwise",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCuda,
          .summary = "cuDNN's pointwise engines, the fastest of the plans it proposes",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .slow_to_plan = true,
          .plan = MakeCudnnPlan};
}

}  // namespace warpcall::gelu
