// broken: a kernel whose implementations fail in every way that a self-test must detect. For tests;
// added only at a test's request.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

// Copies x to y.
const Op& BrokenOp();

// The rows of the CPU device, in order of preference: illegal_instruction, endless, wrong; absent,
// no_compiler and uncompilable, which refuse; where the environment has WARPCALL_TEST_LATE_GATE,
// late, which is slow to plan and waits while there is a file of that name; and the one that just
// works, plain_copy.
std::vector<Implementation> BrokenCpuRows();

}  // namespace warpcall
