// The row that is an op's definition: evaluated in float64, rounded once.
#pragma once

#include "kernels/op.h"

namespace warpcall::cpu {

// It takes every problem, and writes output 0 by all threads of the context's pool. `op` outlives
// it, and has a definition; `file` has it.
Implementation DefinitionRow(const Op& op, const char* file = __builtin_FILE());

}  // namespace warpcall::cpu
