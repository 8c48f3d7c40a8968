// The truth: the definition in float64, rounded once.
#include "kernels/common/element_slices.h"
#include "kernels/cpu/definition_row.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "tests/ops/relu/relu.h"

namespace warpcall::relu {
namespace {

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const Slice slice = ElementSlice(problem, index);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(inputs.inputs[0]) + slice.first;
    double values[kSliceElements];
    for (int64_t i = 0; i < slice.count; ++i) {
      const double value = ToFloat(x[i]);
      values[i] = value <= 0 ? 0.0 : value;
    }
    take(absl::MakeConstSpan(values, slice.count));
  });
}

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  return cpu::LaunchDefinition(ReluOp(), problem, operands, context);
}

}  // namespace

const Definition kDefinition = {
    .slices = ElementSlices, .slice = ElementSlice, .evaluate = Evaluate};

Implementation Float64Row() {
  return {.name = "float64",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "the definition in float64",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::relu
