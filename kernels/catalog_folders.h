// The ops that came with a folder of their own: ops.cmake.
#pragma once

#include "kernels/registry.h"

namespace warpcall {

void AddKernelsOfFolders(Registry* registry);

}  // namespace warpcall
