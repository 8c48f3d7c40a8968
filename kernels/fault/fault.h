// fault: breaks the device that runs it, on request. For tests of what the server does then; added
// only where a test asks for it.
//   kind = "trap"           the GPU stops on an illegal instruction, after which it is lost
//          "out_of_memory"  asks for more memory than any device has
#pragma once

#include <vector>

#include "kernels/op.h"

namespace warpcall {

const Op& FaultOp();

// The rows of GPUs.
std::vector<Implementation> FaultCudaRows();

}  // namespace warpcall
