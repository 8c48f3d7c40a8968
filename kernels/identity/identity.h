// identity: y = x, bit for bit. It shows the cost of the request path itself.
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& IdentityOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> IdentityCpuRows();

// The implementations for CUDA devices, in order of preference.
std::vector<Implementation> IdentityCudaRows();

namespace identity {

// The exact definition, which the reference implementation copies.
extern const Definition kDefinition;

// The cases on which the implementations are checked.
OpCases Cases();

// The implementations, one per file.
Implementation ParallelCopyRow();
Implementation OnednnReorderRow();
Implementation ElementLoopRow();
Implementation VectorCopyRow();
Implementation DeviceMemcpyRow();
Implementation ElementPerThreadRow();
Implementation PlainCopyRow();

}  // namespace identity
}  // namespace warpcall
