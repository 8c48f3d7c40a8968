// relu: y = x where x > 0, NaN where x is NaN, and 0 elsewhere. The op that CONTRIBUTING.md adds.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& ReluOp();

// The rows of the CPU device, in order of preference.
std::vector<Implementation> ReluCpuRows();

namespace relu {

extern const Definition kDefinition;
OpCases Cases();

Implementation ElementLoopRow();
Implementation Float64Row();

}  // namespace relu
}  // namespace warpcall
