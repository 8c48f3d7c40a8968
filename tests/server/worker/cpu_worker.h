// Workers that serve the CPU, for programs that are started again as their own workers.
#pragma once

#include <optional>

#include "kernels/registry.h"

namespace warpcall::testing {

// Called first by main: the exit status when this process was started as a worker, and then it has
// served; otherwise nothing. `kernels`: those that the server has, in its order.
std::optional<int> RunAsCpuWorker(int argc, char** argv, const Registry& kernels);

}  // namespace warpcall::testing
