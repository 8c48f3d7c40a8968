// oneDNN's matmul primitive with bias and gelu at the end of its sums, and one pass after it for
// what its formulas get wrong. relu is that pass: oneDNN's makes 0 of NaN.
#include <algorithm>

#include "kernels/common/round.h"
#include "kernels/cpu/nan_scan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_onednn.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"

namespace warpcall::linear {
namespace {

using matmul::Activation;

constexpr int64_t kGrain = 64 * 1024;  // elements of the pass after it

Activation OnednnsPart(const Problem& problem) {
  const Activation activation = ActivationOf(problem);
  return activation == Activation::kRelu ? Activation::kNone : activation;
}

absl::Status Supports(const Problem& problem, const DeviceProperties& device) {
  return matmul::CheckOnednn(ProductOf(problem), device, {OnednnsPart(problem)});
}

// Outputs that are NaN are computed again: of -infinity, in both forms of gelu, and of a subnormal
// number x infinity in bfloat16 oneDNN makes NaN.
class Correction {
 public:
  explicit Correction(const Problem& problem)
      : activation_(ActivationOf(problem)),
        k_(problem.inputs[kX].dims.back()),
        n_(problem.outputs[0].dims.back()),
        outputs_(problem.outputs[0].elements()),
        makes_nan_(problem.inputs[kX].data_type == DataType::kBFloat16 ||
                   activation_ == Activation::kGelu || activation_ == Activation::kGeluErf) {}

  template <typename T>
  void Apply(const Operands& operands, const cpu::Workers& workers) const {
    if (!makes_nan_ && activation_ != Activation::kRelu) return;
    T* const y = static_cast<T*>(operands.outputs[0]);
    workers.ParallelFor(outputs_, kGrain, [&](int64_t begin, int64_t end) {
      if (makes_nan_ && cpu::AnyNan(y + begin, end - begin))
        for (int64_t i = begin; i < end && !IsSet(workers.stop()); ++i)
          if (cpu::IsNan(y[i])) y[i] = Again<T>(operands, i);
      if (activation_ == Activation::kRelu)
        for (int64_t i = begin; i < end; ++i)
          if (ToFloat(y[i]) < 0) y[i] = FromFloat<T>(0);
    });
  }

 private:
  template <typename T>
  T Again(const Operands& operands, int64_t output) const {
    const T* const x = static_cast<const T*>(operands.inputs[kX]) + output / n_ * k_;
    const T* const weight = static_cast<const T*>(operands.inputs[kWeight]) + output % n_ * k_;
    float sum = 0;
    for (int64_t p = 0; p < k_ && sum == sum; ++p) sum += ToFloat(x[p]) * ToFloat(weight[p]);
    sum += ToFloat(static_cast<const T*>(operands.inputs[kBias])[output % n_]);
    return FromDouble<T>(Activate(activation_, double{sum}));
  }

  const Activation activation_;
  const int64_t k_;
  const int64_t n_;
  const int64_t outputs_;
  const bool makes_nan_;
};

absl::StatusOr<PlanPtr> MakeOnednnPlan(const Problem& problem, const PlanContext& context) {
  const Problem product = ProductOf(problem);
  if (matmul::NothingToSum(product))
    return NewPlan({}, [problem](const Operands& operands, const LaunchContext&) {
      FinishWithoutSums(problem, operands);
      return absl::OkStatus();
    });
  ASSIGN_OR_RETURN(PlanPtr sums, matmul::PlanOnednn(product, context, {OnednnsPart(problem)}));
  const Plan::Traits traits = sums->traits();
  return NewPlan(
      traits, [type = problem.outputs[0].data_type, correction = Correction(problem),
               sums = std::move(sums)](const Operands& operands, const LaunchContext& launch) {
        RETURN_IF_ERROR(sums->Enqueue(operands, launch));
        DispatchDataType(
            type, [&]<typename T>(T) { correction.Apply<T>(operands, cpu::WorkersOf(launch)); });
        return absl::OkStatus();
      });
}

}  // namespace

Implementation OnednnRow() {
  return {.name = "onednn_matmul",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "oneDNN's matmul primitive with bias and gelu on its sums; bfloat16's "
                     "subnormals count as 0",
          .data_types = {DataType::kFloat32, DataType::kBFloat16},
          .supports = Supports,
          .plan = MakeOnednnPlan};
}

}  // namespace warpcall::linear
