// Definitions that yield every element by itself: neighbours, together.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/op.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall {

inline constexpr int64_t kSliceElements = 1024;

inline int64_t ElementSlices(const Problem& problem) {
  return CeilDivide(problem.outputs[0].elements(), kSliceElements);
}

inline Slice ElementSlice(const Problem& problem, int64_t index) {
  WARPCALL_DCHECK(index >= 0 && index < ElementSlices(problem), index, ElementSlices(problem));
  const int64_t first = index * kSliceElements;
  return {.first = first,
          .stride = 1,
          .count = std::min(kSliceElements, problem.outputs[0].elements() - first)};
}

// An `evaluate` of y = kFunction(x) for an op with one input.
template <double (*kFunction)(double x)>
void EvaluateElements(const Problem& problem, const Operands& inputs, int64_t index,
                      TakeValues take) {
  const Slice slice = ElementSlice(problem, index);
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(inputs.inputs[0]) + slice.first;
    double values[kSliceElements];
    for (int64_t i = 0; i < slice.count; ++i) values[i] = kFunction(ToFloat(x[i]));
    take(absl::MakeConstSpan(values, slice.count));
  });
}

}  // namespace warpcall
