// picky: a kernel whose preferred implementations refuse while they are planned. For tests; added
// only at a test's request.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

// Copies x to y.
//   elements_max  the rows that refuse take no more; 0: any number
const Op& PickyOp();

// The rows of the CPU device, in this order: refusing, which is UNIMPLEMENTED, and not_compiling,
// which has a CompileError, over elements_max; taking, which takes all. The first two are library.
std::vector<Implementation> PickyCpuRows();

}  // namespace warpcall
