// The row that is an op's definition: evaluated in float64, rounded once.
#pragma once

#include "kernels/op.h"

namespace warpcall::cpu {

// Returns the row of `op`, which has a definition and outlives it. It takes every problem and
// writes output 0 by all threads of the context's pool. `file` is the source that Describe shows
// for it.
Implementation DefinitionRow(const Op& op, const char* file = __builtin_FILE());

}  // namespace warpcall::cpu
