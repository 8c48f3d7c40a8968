// The truth: no arithmetic, so the row copies bytes and the definition only widens them.
#include <cstring>

#include "kernels/common/dispatch.h"
#include "kernels/common/element_slices.h"
#include "kernels/identity/identity.h"

namespace warpcall::identity {
namespace {

void Evaluate(const Problem& problem, const Operands& inputs, int64_t index, TakeValues take) {
  const Slice slice = ElementSlice(problem, index);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(inputs.inputs[0]) + slice.first;
    double values[kSliceElements];
    for (int64_t i = 0; i < slice.count; ++i) values[i] = ToFloat(x[i]);
    take(absl::MakeConstSpan(values, slice.count));
  });
}

absl::Status Launch(const Problem& problem, const Operands& operands, const LaunchContext&) {
  const size_t bytes = problem.inputs[0].bytes();
  if (bytes > 0) std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
  return absl::OkStatus();
}

}  // namespace

const Definition kDefinition = {
    .slices = ElementSlices, .slice = ElementSlice, .evaluate = Evaluate};

Implementation PlainCopyRow() {
  return {.name = "plain_copy",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "one memcpy",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = nullptr};
}

}  // namespace warpcall::identity
