// identity: y = x, bit for bit. It shows what the path itself costs.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& IdentityOp();

// The rows of the CPU device, in order of preference.
std::vector<Implementation> IdentityCpuRows();

// The rows of CUDA devices, in order of preference.
std::vector<Implementation> IdentityCudaRows();

namespace identity {

// The truth, which the reference row copies.
extern const Definition kDefinition;

// What the rows are checked on.
OpCases Cases();

// The rows, one per file.
Implementation ParallelCopyRow();
Implementation OnednnReorderRow();
Implementation ElementLoopRow();
Implementation VectorCopyRow();
Implementation DeviceMemcpyRow();
Implementation ElementPerThreadRow();
Implementation PlainCopyRow();

}  // namespace identity
}  // namespace warpcall
