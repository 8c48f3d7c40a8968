// The slices of definitions that yield every element by itself: neighbours, together.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/saturate.h"
#include "kernels/op.h"
#include "proto/common/check.h"

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

}  // namespace warpcall
