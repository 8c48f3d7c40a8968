// fault: breaks the device that runs it, on request, to test the server's reaction. Added only at a
// test's request.
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
