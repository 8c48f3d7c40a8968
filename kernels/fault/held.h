// held: a kernel that keeps its lane until released, so that a test can act meanwhile without a
// time limit. For tests; added only at a test's request.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

// Copies x to y.
//   gate   a path: waits while a file of that name exists
//   flops  what the work is reckoned at, so that a test can have it predicted to take any time
const Op& HeldOp();

// The row of the CPU device, gated.
std::vector<Implementation> HeldCpuRows();

}  // namespace warpcall
