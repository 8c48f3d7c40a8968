// A registry whose rows cannot run: metrics read names, kinds and types only.
#pragma once

#include "kernels/registry.h"

namespace warpcall::testing {

// kernel 0 "alpha": row 0 "tiled" (cuda, float32 and bfloat16, with a launch shape),
//                   row 1 "plain" (cpu, all types)
// kernel 1 "beta":  row 2 "plain" (cpu, float32)
const Registry& MadeUpRegistry();

}  // namespace warpcall::testing
